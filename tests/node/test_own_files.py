"""The node's lock file and control socket: what it notices, and how often it looks."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from chargehand.node import own_files
from chargehand.node.loop import Loop
from chargehand.node.own_files import AT_LEAST_EVERY, AT_MOST_EVERY, UNWATCHED_EVERY, OwnFiles
from chargehand.node.server import Server
from chargehand.stores.location import Location, locate

NEVER = float("inf")


class Socket:
    """Stands in for the server: restores a plain file."""

    def __init__(self, path: Path) -> None:
        self.path, self.restored = path, 0
        self.descriptors: list[int] = []
        self._make()

    def _make(self) -> None:
        self.path.unlink(missing_ok=True)
        self.descriptors.append(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # its inode is not used again
        self._inode = self.path.stat().st_ino

    def restore(self) -> bool:
        if self.path.exists() and self.path.stat().st_ino == self._inode:
            return False
        self._make()
        self.restored += 1
        return True


class Ground:
    """A lock file, a socket, and what watches them."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.location: Location = locate(str(folder / "store.db"))
        self.lock = os.open(self.location.node, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.socket = Socket(self.location.socket)
        self.files = OwnFiles(self.loop, cast(Server, self.socket), self.location, self.lock)

    def close(self) -> None:
        self.loop.close()
        for descriptor in self.socket.descriptors:
            os.close(descriptor)

    def settle(self, now: float) -> None:
        """Checks until nothing is due."""
        while self.files.due() <= now:
            self.files.check(now)
            now += AT_MOST_EVERY

    def hear(self, seconds: float = 5.0) -> bool:
        """Returns whether inotify has reported something."""
        ready = self.loop.wait(seconds)
        self.loop.handle(ready)
        return bool(ready)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.close()


# spec: SV-11
def test_the_node_does_not_wake_while_nothing_happens_to_its_files(ground: Ground) -> None:
    ground.settle(10.0)
    assert ground.files.due() == NEVER
    assert not ground.hear(0)


# spec: SV-11
@pytest.mark.parametrize("deed", ["delete", "rename", "replace"])
@pytest.mark.parametrize("which", ["lock", "socket"])
def test_a_deleted_or_renamed_file_is_reported_at_once(ground: Ground, which: str, deed: str) -> None:
    ground.settle(10.0)
    path = ground.location.node if which == "lock" else ground.location.socket
    if deed == "delete":
        path.unlink()
    elif deed == "rename":
        path.rename(path.with_name("elsewhere"))
    else:
        other = path.with_name("other")
        other.touch()
        other.rename(path)
    assert ground.hear()
    assert ground.files.due() <= 100.0
    ground.settle(100.0)
    assert path.exists()
    assert not ground.files.replaced
    path.unlink()
    assert ground.hear(), "the new file is watched as well"


# spec: SV-11
def test_files_that_are_deleted_again_and_again_are_not_restored_without_a_pause(ground: Ground) -> None:
    ground.settle(10.0)
    ground.location.socket.unlink()
    assert ground.hear()
    ground.files.check(100.0)
    ground.location.socket.unlink()
    assert ground.hear()
    ground.files.check(100.1)
    assert ground.socket.restored == 1
    assert ground.files.due() == 100.0 + AT_MOST_EVERY
    ground.files.check(100.0 + AT_MOST_EVERY)
    assert ground.socket.restored == 2


# spec: SV-11
def test_what_inotify_does_not_report_is_noticed_when_the_node_is_awake(ground: Ground, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    within = Ground(folder)
    within.settle(10.0)
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    assert not within.hear(0)
    within.files.check(20.0 + AT_LEAST_EVERY)
    assert within.location.node.exists()
    assert within.location.socket.exists()
    within.close()


# spec: SV-11
def test_without_inotify_the_node_looks_every_second(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(paths: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(own_files, "watch", none_left)
    ground.files.check(10.0)
    assert ground.files.due() == 10.0 + UNWATCHED_EVERY
    ground.location.socket.unlink()
    ground.files.check(10.0 + UNWATCHED_EVERY)
    assert ground.location.socket.exists()
    monkeypatch.undo()
    ground.settle(20.0)
    assert ground.files.due() == NEVER


# spec: SV-11
def test_a_node_whose_lock_another_took_looks_no_more(ground: Ground) -> None:
    ground.settle(10.0)
    ground.location.node.unlink()
    other = os.open(ground.location.node, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert ground.hear()
    ground.files.check(100.0)
    assert ground.files.replaced
    assert ground.files.due() == NEVER
    os.close(other)
