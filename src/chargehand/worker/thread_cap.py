"""Limits the threads of libraries that do not read a limit from the environment, when a handler imports them.

Every worker loads this module: it must not import those libraries itself.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class _Cap:
    """An import hook that finds a module as usual, once, and calls a function after the module is loaded."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> "ModuleSpec | None":
        """Implements the import system's finder protocol."""
        if name != self._name:
            return None
        from importlib.machinery import PathFinder  # loaded only if the library is

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._then(module)

            loader.exec_module = exec_module
        return spec


def cap(threads: int) -> None:
    """Sets the default number of threads of onnxruntime sessions to `threads`."""

    def of_onnxruntime(module: Any) -> None:
        made = module.InferenceSession.__init__

        def make(self: Any, model: Any, sess_options: Any = None, *rest: Any, **named: Any) -> None:
            options = module.SessionOptions() if sess_options is None else sess_options
            options.intra_op_num_threads = options.intra_op_num_threads or threads
            options.inter_op_num_threads = options.inter_op_num_threads or threads
            made(self, model, options, *rest, **named)

        module.InferenceSession.__init__ = make

    sys.meta_path.insert(0, _Cap("onnxruntime", of_onnxruntime))
