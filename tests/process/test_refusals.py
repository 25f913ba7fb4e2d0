"""What the operating system refuses a command: one sentence with the file, the reason and the remedy; no traceback."""

import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from terminal import WITHOUT_OVERRIDE, Told, chargehand_into, environment_of
from terminal import chargehand as terminal

from chargehand.stores.location import locate
from chargehand.stores.sqlite.store import SqliteStore

READING = (
    "status", "status --json", "jobs list", "claims", "crashes", "top", "keys list", "recurring", "jobs cancel x",
    "pause tag", "resume tag",
)  # fmt: skip
"""Commands that need a store and print something."""
ALL = (*READING, "logs", "jobs enqueue tag 1", "jobs retry x", "stop", "scale tag 2", "wake tag", "events -n 1")
NEED_FOLDER = ("work jobs:hand", "serve jobs:hand", "check jobs:hand", "run jobs:hand tag", "init")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    SqliteStore(tmp_path / "chargehand.db").close()
    return tmp_path / "chargehand.db"


def one_line(told: Told, code: int) -> str:
    """The only line on standard error, and nothing else."""
    assert told.returncode == code, told
    assert told.stdout == ""
    (line,) = told.stderr.splitlines()
    assert line.startswith("chargehand: ")
    return line.removeprefix("chargehand: ")


@contextmanager
def deleted_folder(folder: Path) -> Generator[Path]:
    """A folder that processes can still change to, though it was deleted."""
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    folder.rmdir()
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


@pytest.mark.full
def test_a_deleted_folder(tmp_path: Path, store: Path) -> None:  # spec: CL-3 CL-4
    with deleted_folder(tmp_path / "gone") as gone:
        for words in (*ALL, *NEED_FOLDER, "doctor --store x.db"):
            told = terminal(*words.split(), cwd=gone)
            assert one_line(told, 1).startswith("the current folder was deleted: change to another one"), words
        assert terminal("jobs", "list", "--store", str(store), cwd=gone).returncode == 0
        assert terminal("doctor", "--store", str(store), cwd=gone).stdout.startswith("not working: no node runs")
        assert not terminal("doctor", cwd=gone).stderr


@pytest.mark.parametrize("words", [*READING, "doctor", "events -n 1", "--help", "--version"])
def test_output_that_cannot_be_written(words: str, store: Path) -> None:  # spec: CL-3
    """A full disk is an error in words; a reader that has ended, as `head` does, is no error worth a line."""
    full = os.open("/dev/full", os.O_WRONLY)
    unread, broken = os.pipe()
    os.close(unread)
    at = () if words.startswith("--") else ("--store", str(store))
    try:
        told = chargehand_into(full, *words.split(), *at)
        assert one_line(told, 1).startswith("standard output cannot be written: No space left on device")
        ended = chargehand_into(broken, *words.split(), *at)
        assert (ended.returncode, ended.stderr) == (141, "")
    finally:
        os.close(full)
        os.close(broken)


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", ">&- 2>&- <&-"])
def test_closed_streams(closed: str, store: Path) -> None:  # spec: CL-3
    before = store.read_bytes()
    words = f"{shlex.quote(sys.executable)} -m chargehand jobs list --store {shlex.quote(str(store))} {closed}"
    told = subprocess.run(["sh", "-c", words], env=environment_of(), capture_output=True, text=True, check=False)
    if closed == ">&-":
        assert one_line(told, 1).startswith("standard output cannot be written: it is closed")
    else:
        assert (told.returncode, told.stdout, told.stderr) == (1, "", "")
    assert store.read_bytes() == before


def test_names_that_cannot_be_written(tmp_path: Path) -> None:  # spec: CL-3 CL-4
    latin = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.db")
    for words in ("status", "doctor", "jobs list"):
        told = terminal(*words.split(), "--store", latin)
        refusal = f"the store's path is not valid UTF-8: {tmp_path}/caf\\xe9.db; choose another"
        assert one_line(told, 4) == f"{refusal} [store-unusable]"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
    env, command = environment_of(**ascii_only), [sys.executable, "-m", "chargehand"]
    refused = subprocess.run(
        [*command, "doctor", "--store", str(tmp_path / "café.db")], env=env, capture_output=True, text=True, check=False
    )
    remedy = "set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8 [store-unusable]"
    assert one_line(refused, 4).endswith(rf"(ascii) lacks: {tmp_path}/caf\xc3\xa9.db; {remedy}")
    SqliteStore(tmp_path / "plain.db").close()
    told = subprocess.run(
        [*command, "doctor", "--store", str(tmp_path / "plain.db")], env=env, capture_output=True, check=False
    )
    assert (told.returncode, told.stderr) == (1, b"")
    assert rb"\u2192 start one: chargehand work APP" in told.stdout


def test_paths_that_are_no_store(tmp_path: Path, store: Path) -> None:  # spec: CL-3
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere.db")
    for path, text in (
        (tmp_path, f"{tmp_path} is a folder, not a store: name a file in it"),
        (tmp_path / "loop.db", f"{tmp_path}/loop.db is a symbolic link that refers to itself: name the file of the"),
        (tmp_path / "dangling.db", f"there is no store at {tmp_path}/nowhere.db, to which {tmp_path}/dangling.db is"),
        (store / "x.db", f"{store} cannot be used: Not a directory; a part of the path is a file"),
        (tmp_path / ("x" * 300), "the store's name is too long, 300 bytes (allowed are 247)"),
    ):
        for words in ALL if path == tmp_path else ("status", "stop"):
            assert one_line(terminal(*words.split(), "--store", str(path)), 4).startswith(text), words


def refused(path: Path, *words: str) -> str:
    command = [*WITHOUT_OVERRIDE, sys.executable, "-m", "chargehand", *words, "--store", str(path)]
    told = subprocess.run(command, env=environment_of(), capture_output=True, text=True, check=False)
    return one_line(told, 4)


FINGERPRINT = """
import sys
from chargehand.node.fingerprint import fingerprint
from chargehand.settings.plan import CrewPlan
print(fingerprint(CrewPlan(name="tag", queue="tag", handler="handlers:Tag"), sys.argv[1:]))
"""


def test_another_users_folder_on_the_path_of_modules(tmp_path: Path) -> None:
    """An import passes over it; so does the node when it looks for the code of its handlers."""
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: to be another user needs root")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir(mode=0o700)
    ours.mkdir()
    os.chown(theirs, 65534, 65534)
    command = [*WITHOUT_OVERRIDE, sys.executable, "-c", FINGERPRINT, str(theirs), str(ours)]
    told = subprocess.run(command, env=environment_of(), capture_output=True, text=True, check=False)
    assert (len(told.stdout.strip()), told.stderr) == (64, "")


@pytest.mark.full
def test_another_users_store(tmp_path: Path, store: Path) -> None:  # spec: CL-3 CL-4
    """The database, the lock, the node's lock and the folder, each by its owner; the remedy is to be that user."""
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: to be another user needs root")
    why = "cannot be used: Permission denied; it belongs to nobody, and this process runs as root: run it as nobody"
    location = locate(str(store))
    for file, words in ((store, "status"), (location.lock, "jobs list"), (location.node, "pause")):
        file.touch()
        file.chmod(0o600)
        os.chown(file, 65534, 65534)
        assert refused(store, *words.split()).startswith(f"{file} {why}")
        os.chown(file, 0, 0)
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 65534, 65534)
    try:
        assert refused(store, "top").startswith(f"{tmp_path} {why}")
    finally:
        os.chown(tmp_path, 0, 0)
