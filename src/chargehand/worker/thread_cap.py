"""A cap on the threads of libraries that do not read it from the environment: set when, and if, they are imported.

Loaded in every worker: it imports nothing, and least of all those libraries.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class _Cap:
    """Finds a module as Python would, once, and has something done to it as soon as it is loaded."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Part of the import system's protocol."""
        if name != self._name:
            return None
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
    """From now on an onnxruntime session that is not told otherwise uses so many threads."""

    def of_onnxruntime(module: Any) -> None:
        made = module.InferenceSession.__init__

        def make(self: Any, model: Any, sess_options: Any = None, *rest: Any, **named: Any) -> None:
            options = module.SessionOptions() if sess_options is None else sess_options
            options.intra_op_num_threads = options.intra_op_num_threads or threads
            options.inter_op_num_threads = options.inter_op_num_threads or threads
            made(self, model, options, *rest, **named)

        module.InferenceSession.__init__ = make

    sys.meta_path.insert(0, _Cap("onnxruntime", of_onnxruntime))
