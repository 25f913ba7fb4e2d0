"""The files beside a store: for one user alone, no links, and nothing that another user has planted."""

import errno
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from apsw import Connection as Engine

from chargehand.doctor import looks
from chargehand.errors import StoreError
from chargehand.host import nodelock, restart_plan
from chargehand.host.calls import Calls, Connection, ForeignNode, NoNode
from chargehand.node.loop import Loop
from chargehand.node.server import Server
from chargehand.processes import proc
from chargehand.processes.leftovers import Life
from chargehand.processes.lockfile import take_again
from chargehand.processes.record import ProcessRecord
from chargehand.stores import notes
from chargehand.stores.location import Location, locate
from chargehand.stores.sqlite.store import SqliteStore

NOBODY = 65534
SUFFIXES = ("", "-wal", "-shm", "-journal", "-lock", "-node", "-lives")


def root_only() -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: to be another user needs root")


@pytest.fixture
def location(folder: Path) -> Location:
    return Location(folder / "store.db")


def beside(location: Location, suffix: str) -> Path:
    return Path(f"{location.path}{suffix}")


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.lstat().st_mode) for file in folder.iterdir()}


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def use_everything(location: Location) -> None:
    """Opens or makes every file of a store, as a host and its node do."""
    lock = nodelock.take(location)
    assert lock is not None
    nodelock.sign(lock, os.getpid(), "here", [], "")
    record = ProcessRecord(location.lives, location.mark)
    assert record.end_earlier(1) == []
    record.stopping()
    SqliteStore(location.path).close()
    nodelock.release(lock)
    nodelock.holder(location)
    nodelock.check_namespace(location)


def listening(location: Location) -> tuple[Server, Loop]:
    loop, nothing = Loop(), Any
    made: Any = Server
    return made(loop, location.socket, 10, nothing, nothing, nothing, nothing, nothing, nothing), loop


# modes


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_every_file_is_for_this_user_alone(location: Location, mask: int) -> None:  # spec: SE-7
    with umask(mask):
        use_everything(location)
        store = SqliteStore(location.path)
        server, _ = listening(location)
    found = modes(location.path.parent)
    server.close()
    store.close()
    assert found == {f"store.db{end}": 0o600 for end in ("", "-wal", "-shm", "-lock", "-node", "-lives", "-sock")}


def test_files_of_an_earlier_version_are_made_private_and_it_is_logged_once(  # spec: SE-7
    location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    kept = SqliteStore(location.path)
    location.lives.write_bytes(b"")
    for suffix in ("", "-wal", "-shm", "-lives"):
        beside(location, suffix).chmod(0o644)
    logging.getLogger("chargehand").propagate = True
    use_everything(location)
    use_everything(location)
    assert set(modes(location.path.parent).values()) == {0o600}
    (line,) = [record for record in caplog.records if getattr(record, "facts", {}).get("event") == "files-secured"]
    assert line.__dict__["facts"]["files"] == ["store.db", "store.db-wal", "store.db-shm"]
    kept.close()


def test_a_token_that_others_could_read_is_not_made_valid(location: Location) -> None:  # spec: SE-7 SE-1
    location.token.write_text("ch_known-to-others")
    location.token.chmod(0o644)
    use_everything(location)
    assert notes.read(location.token) is None
    assert not location.token.exists()


def test_a_store_in_use_keeps_its_locks_when_it_is_made_private(location: Location) -> None:  # spec: SE-7 ST-2
    """Closing a descriptor of the database would drop every lock of this process on it."""
    first = SqliteStore(location.path)
    with first.transaction():
        location.path.chmod(0o644)
        location.secure()
        assert modes(location.path.parent)["store.db"] == 0o600
        code = f"import apsw; apsw.Connection({str(location.path)!r}).execute('BEGIN IMMEDIATE')"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "BusyError" in other.stderr
    first.close()


# links and other things in place of a file


def link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


def hard_link(path: Path) -> None:
    os.link(path.parent / "victim", path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("plant", "word"),
    [(link, "symbolic link"), (hard_link, "hard link"), (os.mkfifo, "pipe"), (os.mkdir, "folder")],
)
def test_nothing_but_a_plain_file_is_used(  # spec: SE-7
    location: Location, suffix: str, plant: Callable[[Path], None], word: str
) -> None:
    victim = location.path.parent / "victim"
    victim.write_text("do not touch")
    victim.chmod(0o644)
    plant(beside(location, suffix))
    with pytest.raises(StoreError, match=f"^{re.escape(str(beside(location, suffix)))} is a {word}"):
        use_everything(location)
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("do not touch", 0o644)


@pytest.mark.parametrize("plant", [link, hard_link, os.mkfifo, os.mkdir])
def test_no_user_of_a_file_follows_links_by_itself(  # spec: SE-7
    location: Location, plant: Callable[[Path], None]
) -> None:
    """Without the check of all files at the beginning, which a file that is planted later is not subject to."""
    victim = location.path.parent / "victim"
    victim.write_text("do not touch")
    for file in (location.lives, location.node):
        plant(file)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: ProcessRecord(location.lives, location.mark).end_earlier(1),
        lambda: nodelock.holder(location),
        lambda: nodelock.check_namespace(location),
        lambda: take_again(-1, location.node),
    )
    for use in uses:
        with pytest.raises(StoreError, match="Chargehand does not use it"):
            use()
    assert restart_plan.announced(location) is None
    ProcessRecord(location.lives, location.mark).stopping()  # is logged, and does not stop a node
    assert victim.read_text() == "do not touch"


def test_the_engine_follows_no_link(location: Location) -> None:  # spec: SE-7
    """Chargehand relies on it for files that are planted between its check and the engine's own `open`."""
    for suffix in ("-wal", "-shm"):
        SqliteStore(location.path).close()
        beside(location, suffix).symlink_to(location.path.parent / "victim")
        with pytest.raises(Exception, match="unable to open"):
            Engine(str(location.path)).execute("SELECT * FROM chargehand_schema").fetchall()
        assert not (location.path.parent / "victim").exists()
        beside(location, suffix).unlink()


def test_a_socket_is_not_reached_through_a_link(location: Location) -> None:  # spec: SE-7
    elsewhere = Location(location.path.parent / "other.db")
    server, _ = listening(elsewhere)
    location.socket.symlink_to(elsewhere.socket)
    with pytest.raises(NoNode, match="Too many levels of symbolic links"):
        Connection(location, 1)
    server.close()


@pytest.mark.parametrize("plant", [link, hard_link, os.mkfifo])
def test_a_node_replaces_what_stands_in_place_of_its_socket(  # spec: SE-7
    location: Location, plant: Callable[[Path], None]
) -> None:
    victim = location.path.parent / "victim"
    victim.write_text("do not touch")
    plant(location.socket)
    server, _ = listening(location)
    assert (stat.S_ISSOCK(location.socket.lstat().st_mode), victim.read_text()) == (True, "do not touch")
    server.close()


def test_a_folder_in_place_of_the_socket_is_refused_in_words(location: Location) -> None:  # spec: SE-7
    location.socket.mkdir()
    with pytest.raises(StoreError, match="-sock is a folder in place of the node's socket: remove it"):
        listening(location)


# folders


def test_folders_that_others_may_write_are_refused_in_words(folder: Path) -> None:  # spec: SE-7
    for mode, remedy in ((0o777, f"chmod o-w {folder}"), (0o1777, f"mkdir -m 700 {folder}/NAME")):
        folder.chmod(mode)
        for use in (lambda: SqliteStore(folder / "x.db"), lambda: nodelock.take(Location(folder / "x.db"))):
            with pytest.raises(StoreError, match=f"^every user may write to the folder {folder}, .*{remedy}"):
                use()
    assert list(folder.iterdir()) == []
    folder.chmod(0o775)
    SqliteStore(folder / "x.db").close()


def test_a_link_in_a_folder_that_others_may_write_names_no_store(folder: Path) -> None:  # spec: SE-7
    SqliteStore(folder / "real.db").close()
    (folder / "open").mkdir()
    (folder / "open").chmod(0o1777)
    (folder / "open" / "x.db").symlink_to(folder / "real.db")
    with pytest.raises(StoreError, match=r"^every user may write to the folder"):
        locate(str(folder / "open" / "x.db"))


def as_nobody(code: Callable[[], None]) -> int:
    """Runs the function in a process of another user, and returns its exit code."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_another_users_folder_and_files(folder: Path) -> None:  # spec: SE-7
    """Refused to a user; root may use any, as containers and volumes need it."""
    root_only()
    mine, theirs = folder / "mine", folder / "theirs"
    folder.chmod(0o711)
    for each, owner in ((mine, NOBODY), (theirs, 1)):
        each.mkdir(mode=0o711)
        os.chown(each, owner, owner)
    use_everything(Location(mine / "x.db"))
    for file in mine.iterdir():
        os.chown(file, NOBODY, NOBODY)

    def look() -> None:
        use_everything(Location(mine / "x.db"))
        with pytest.raises(StoreError, match=f"the folder {theirs} belongs to daemon, who could replace"):
            SqliteStore(theirs / "x.db")
        os.chmod(mine, 0o777)
        os.chmod(mine, 0o711)

    assert as_nobody(look) == 0
    use_everything(Location(mine / "x.db"))
    os.chown(mine / "x.db-lives", 1, 1)

    def refused() -> None:
        with pytest.raises(StoreError, match=r"x\.db-lives belongs to daemon, and this process runs as nobody"):
            use_everything(Location(mine / "x.db"))

    assert as_nobody(refused) == 0


# processes


def recorded(location: Location, victim: int, owner: int) -> int:
    """Plants a record that names a process; returns when that was started."""
    seen = proc.stat(victim)
    assert seen is not None
    life = Life(boot=proc.boot_id(), pid=victim, start=seen.start, component="worker:do:0")
    location.lives.write_bytes(msgspec.json.encode(life) + b"\n")
    os.chown(location.lives, owner, owner)
    return seen.start


@pytest.mark.parametrize(("owner", "ends"), [(NOBODY, False), (0, True)])
def test_a_record_kills_only_what_its_owner_may_kill(  # spec: SE-7 SV-11
    location: Location, owner: int, ends: bool
) -> None:
    root_only()
    victim = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        start = recorded(location, victim.pid, owner)
        assert ProcessRecord(location.lives, location.mark).end_earlier(1) == []
        assert (not proc.alive(victim.pid, start)) is ends
        assert location.lives.stat().st_uid == 0  # the next record is this user's own
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


def test_a_copy_of_a_store_kills_no_process_of_the_original(folder: Path) -> None:  # spec: SV-11
    """Neither a copy of a whole folder, nor one of a record that was deleted and made again while the node ran."""
    for made_again in (False, True):
        location = Location(folder / f"original{made_again}" / "store.db")
        location.path.parent.mkdir(mode=0o700)
        victim = subprocess.Popen(["sleep", "60"], start_new_session=True)
        try:
            seen = proc.stat(victim.pid)
            assert seen is not None
            record = ProcessRecord(location.lives, location.mark)
            assert record.end_earlier(1) == []
            if made_again:
                location.lives.unlink()
            record.note("worker:do:0", began=[(victim.pid, seen.start)])
            copied = location.path.parent.with_name(f"copied{made_again}")
            subprocess.run(["cp", "-a", location.path.parent, copied], check=True)
            copy = Location(copied / location.path.name)
            other = ProcessRecord(copy.lives, copy.mark)
            assert other.end_earlier(1) == []
            assert proc.alive(victim.pid, seen.start)
            assert other.earlier_was_asked, "jobs of the copy are blamed for the end of a node that has not ended"
            # A folder that was renamed is the same store.
            renamed = location.path.parent.with_name(f"renamed{made_again}")
            location.path.parent.rename(renamed)
            moved = Location(renamed / location.path.name)
            assert ProcessRecord(moved.lives, moved.mark).end_earlier(1) == []
            assert not proc.alive(victim.pid, seen.start)
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()


# the two ends of the socket


@contextmanager
def false_node(location: Location) -> Generator[int]:
    """A process of another user that listens at the socket; yields where it reports how many bytes it was sent."""
    reading, writing = os.pipe()
    os.chmod(location.path.parent, 0o711)
    child = os.fork()
    if child == 0:
        listener = socket.socket(socket.AF_UNIX)
        os.chdir(location.path.parent)
        listener.bind(location.socket.name)
        os.chown(location.socket.name, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        listener.listen()
        os.write(writing, b"ready")
        while True:
            os.write(writing, b"%d" % len(listener.accept()[0].recv(1000)))
    try:
        assert os.read(reading, 10) == b"ready"
        yield reading
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_a_false_node_is_sent_nothing(location: Location) -> None:  # spec: SE-7
    root_only()
    SqliteStore(location.path).close()
    with false_node(location) as sent:
        calls = Calls(location)
        assert calls.hint("tag") is False
        with pytest.raises(ForeignNode, match=f"^a process of nobody listens at {location.socket}, and this process"):
            calls.enqueue([])
        assert os.read(sent, 1) + os.read(sent, 1) == b"00"
        os.chown(location.path, NOBODY, NOBODY)  # to root, the owner of the store is the one to serve it
        assert calls.hint("tag") is True
        calls.close()


def test_a_node_serves_no_other_user(location: Location) -> None:  # spec: SE-7
    root_only()
    server, loop = listening(location)
    os.chmod(location.path.parent, 0o711)
    location.socket.chmod(0o666)

    def call() -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(location.socket))
        sock.settimeout(5)
        assert sock.recv(10) == b""

    child = os.fork()
    if child == 0:
        os._exit(as_nobody(call))
    loop.handle(loop.wait(5))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    server.close()


# the rest


def test_a_file_system_without_permissions_is_no_error(  # spec: SE-7
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(location.path).close()
    location.path.chmod(0o644)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "chmod", refuse)
    use_everything(location)


def test_doctor_names_what_is_refused_and_a_folder_of_a_group(location: Location) -> None:  # spec: SE-7 CL-4
    SqliteStore(location.path).close()
    assert looks.under(location)["shared"] is False
    location.path.parent.chmod(0o770)
    found = looks.under(location)
    assert (found["shared"], found["error"]) == (True, None)
    location.path.parent.chmod(0o1777)
    assert looks.under(location)["error"].startswith("every user may write to the folder")
    location.path.parent.chmod(0o700)
    os.mkfifo(beside(location, "-wal"))
    assert looks.under(location)["error"].startswith(f"{location}-wal is a pipe, not a file")
    beside(location, "-wal").unlink()
    location.path.chmod(0o644)
    location.node.symlink_to("elsewhere")
    assert looks.holder(location)["refused"] is True
    assert modes(location.path.parent)["store.db"] == 0o644  # nothing is changed
