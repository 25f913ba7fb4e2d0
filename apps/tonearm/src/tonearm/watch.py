"""Watches the folders of a library by their modification times and starts scans. Must not import anything heavy.

Files are not checked here: 100,000 of them are in a few thousand folders.
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
    """The folders below a root, with their modification times."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._times: dict[bytes, int] = {}
        self._enter([root])

    def changed(self) -> bool:
        """Returns whether a folder changed since the last call; always False while the root is missing."""
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
        """Records the time of a folder and of all unknown folders below it."""
        while left:
            path = left.pop()
            time = _time(path)  # read before listing: a later addition is a change
            if time is None:
                continue
            self._times[path] = time
            try:
                with os.scandir(path) as entries:
                    inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError as error:
                _logger.debug("cannot watch a folder: %s", error)
                continue
            left += [each for each in inner if each not in self._times and not os.path.basename(each).startswith(b".")]


def _time(path: bytes) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


class Watcher:
    """Starts a scan of changed folders once they have stopped changing."""

    def __init__(self, crews: Crews, folders: Iterable[Folder]) -> None:
        self._crews = crews
        self._trees = [(folder, Tree(folder.root)) for folder in folders]
        self._restless: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tonearm-watch", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread."""
        self._over.set()
        self._thread.join()

    def step(self) -> None:
        """Checks once."""
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
            except ChargehandError as error:  # for example, the node is being replaced: try again at the next check
                _logger.warning("cannot scan a changed folder, will try again: %s", error)
