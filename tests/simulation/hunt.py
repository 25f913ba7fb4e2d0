"""`python hunt.py`: reads mutants, one line of JSON each, and says which history sees each of them, and how.

Every mutant lives in a process of its own, forked from this one, which has compiled everything and imported nothing of
ours: so a mutant costs one file's compilation, and no other file is ever written.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType

HERE = Path(__file__).parent
LONGEST = 100
"""Seconds that a mutant has."""
_codes: dict[str, CodeType] = {}


class Remembered(SourceFileLoader):
    """Compiles every file once, however often it is imported."""

    def get_code(self, fullname: str) -> CodeType:
        if self.path not in _codes:
            _codes[self.path] = compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)
        return _codes[self.path]


def remember(roots: Sequence[Path]) -> None:
    """Have everything below these folders imported from memory."""

    def finder(path: str) -> FileFinder:
        if not any(Path(path).is_relative_to(root) for root in roots):
            raise ImportError(path)
        return FileFinder(path, (Remembered, [".py"]))

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()


def compile_all(roots: Sequence[Path]) -> None:
    """Import everything once, and forget it: what is compiled, and what others wrote, stays."""
    import_module("telling")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and name != "__main__" and any(Path(file).is_relative_to(root) for root in roots):
            del sys.modules[name]


def hunt(file: str | None, text: str, histories: list[str]) -> list[str]:
    """With this text in place of that file: the history that breaks a promise, and which; or nothing."""
    if file is not None:
        _codes[file] = compile(text, file, "exec", dont_inherit=True)
    return import_module("telling").first_broken(histories)


def main() -> None:
    package = Path(os.environ["SOURCE"])
    sys.path[:0] = [str(HERE), str(package.parent)]
    remember([HERE, package])
    compile_all([HERE, package])
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.alarm(LONGEST)
            sys.stdout.write(json.dumps(hunt(**json.loads(line))) + "\n")
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.stdout.write("null\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
