"""The files beside a store, through which its processes on this machine find each other.

A host that only waits loads this module, so it imports little.
"""

import os
from pathlib import Path

from chargehand.system import private
from chargehand.system.sha256 import sha256

NODE = "-node"
FOLDER, STATE = "chargehand", "store"
"""The folder of all stores on servers, and the beginning of the names of files in the folder of each that all nodes
share."""
_OF_NODE, _DIGITS = "node-", "0123456789abcdef"


class Beside:
    """The names of these files: that of the store, and a suffix."""

    __slots__ = ()

    path: Path
    """The store, or what stands for it."""

    @property
    def lock(self) -> Path:
        """The lock that every writer takes."""
        return self._beside("-lock")

    @property
    def node(self) -> Path:
        """The lock that makes a node the only one."""
        return self._beside(NODE)

    @property
    def lives(self) -> Path:
        """The record of the processes that the node has started."""
        return self._beside("-lives")

    @property
    def socket(self) -> Path:
        """The node's control socket."""
        return self._beside("-sock")

    @property
    def token(self) -> Path:
        """The token with which HTTP is used while no key exists."""
        return self._of_all_nodes("-token")

    @property
    def site(self) -> Path:
        """Where a server of this machine serves the dashboard, and its process."""
        return self._of_all_nodes("-site")

    @property
    def in_state_folder(self) -> bool:
        """Whether the files are those of a store on a server; the server is unknown if only a file was found."""
        return self.path.parents[1].name == FOLDER and (self.path.name == STATE or is_of_node(self.path.name))

    @property
    def mark(self) -> str:
        """The text by which processes that work for this store are recognised in their environment."""
        return sha256(os.fsencode(self.path)).hexdigest()[:16]

    def _beside(self, suffix: str) -> Path:
        return Path(f"{self.path}{suffix}")

    def _of_all_nodes(self, suffix: str) -> Path:
        """Returns a file that all nodes of the store on this machine share."""
        return Path(f"{self.path.with_name(STATE) if self.in_state_folder else self.path}{suffix}")

    def check(self) -> None:
        """Raises StoreError if another user could replace the files of the store, or has. Changes nothing."""
        private.check_folder(self.path.parent)
        private.check_files(self.files())

    def files(self) -> list[Path]:
        """Returns the files of the store, the engine's own included, but not the socket and the token.

        A token that others could read must be deleted, not made private: `notes` does that.
        """
        engine = [self._beside(suffix) for suffix in ("", "-wal", "-shm", "-journal")]
        return [*engine, self.lock, self.node, self.lives]


class Files(Beside):
    """These files, for a process that does not use the store itself."""

    __slots__ = ("_shown", "path")

    def __init__(self, path: Path, shown: str) -> None:
        self.path, self._shown = path, shown

    def __str__(self) -> str:
        return self._shown


def is_of_node(name: str) -> bool:
    """Whether this is the beginning of the names of the files of one node: several may run on one machine."""
    digits = name.removeprefix(_OF_NODE)
    return name.startswith(_OF_NODE) and len(digits) == 8 and all(digit in _DIGITS for digit in digits)
