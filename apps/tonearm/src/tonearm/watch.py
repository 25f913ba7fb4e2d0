"""Watching: a folder whose time changed has other files in it than before, and the library is scanned. Light.

Files are not looked at here: 100,000 of them lie in a few thousand folders.
"""

import logging
import os
import threading
from collections.abc import Iterable

from chargehand import ChargehandError
from tonearm.crews import Crews
from tonearm.handlers import Look
from tonearm.library import Folder, shown

EVERY = 10.0

_logger = logging.getLogger(__name__)


class Tree:
    """The folders below a root, and when each was changed."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._times: dict[bytes, int] = {}
        self._enter([root])

    def changed(self) -> bool:
        """Whether anything was changed since this was last asked; never while the root is not there."""
        if not os.path.isdir(self._root):
            return False
        changed = False
        for path, before in list(self._times.items()):
            now = _time(path)
            if now == before:
                continue
            changed = True
            if now is None:
                del self._times[path]
            else:
                self._enter([path])
        return changed

    def _enter(self, left: list[bytes]) -> None:
        """Take in a folder's time, and all that is below it and not known yet."""
        while left:
            path = left.pop()
            time = _time(path)  # before it is listed: what comes meanwhile is a change
            if time is None:
                continue
            self._times[path] = time
            try:
                with os.scandir(path) as entries:
                    inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError as error:
                _logger.debug("a folder cannot be watched: %s", error)
                continue
            left += [each for each in inner if each not in self._times and not os.path.basename(each).startswith(b".")]


def _time(path: bytes) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


class Watcher:
    """Has folders scanned that were changed, once they have come to rest."""

    def __init__(self, crews: Crews, folders: Iterable[Folder]) -> None:
        self._crews = crews
        self._trees = [(folder, Tree(folder.root)) for folder in folders]
        self._restless: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tonearm-watch", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def step(self) -> None:
        """Look once."""
        for folder, tree in self._trees:
            if tree.changed():
                self._restless.add(folder.id)
            elif folder.id in self._restless:
                self._crews.library.enqueue(Look(folder.id), key=f"scan {folder.id}", label=shown(folder.root))
                self._restless.discard(folder.id)

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            try:
                self.step()
            except ChargehandError as error:  # the node is being replaced, say: the next look tries again
                _logger.warning("a changed folder could not be scanned just now: %s", error)
