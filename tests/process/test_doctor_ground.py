"""What `doctor` says of stores that cannot be used, and of disks that hang: without a node, but for a slow one."""

import ctypes
import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from operating import become
from scripted_app import chargehand
from test_contention import fill
from test_doctor_node import doctor, only
from world import World

from chargehand import StoreError, clock
from chargehand.doctor.examine import examine, find_and_examine, is_named
from chargehand.model.doctor.causes import CAUSES
from chargehand.model.records import CrashReport, CrewRow, Holder
from chargehand.stores.location import locate
from chargehand.stores.sqlite.store import SqliteStore
from chargehand.testing import eventually

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def dead_mount(folder: Path) -> Generator[None]:
    """A network file system whose server has gone: every look at it waits."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("NOT PROVEN HERE: a mount that hangs needs root and FUSE")
    folder.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if _libc.mount(b"server:/", os.fsencode(folder), b"fuse.sshfs", 0, options) != 0:
        os.close(device)
        pytest.skip(f"NOT PROVEN HERE: no mount ({os.strerror(ctypes.get_errno())})")
    try:
        yield
    finally:
        _libc.umount2(os.fsencode(folder), 2)
        os.close(device)


def test_a_mount_that_hangs(tmp_path: Path) -> None:  # spec: CL-4 ST-2 # cause: store-hung network
    with dead_mount(tmp_path / "far"):
        began = clock.monotonic()
        found = find_and_examine(str(tmp_path / "far" / "chargehand.db"), patience=1.5)
        assert clock.monotonic() - began < 30  # it is not waited for; how long the machine takes is another matter
    hung = only(found, "store-hung")
    assert hung.text.endswith("chargehand.db (file) timed out after 1.5 s: its disk hangs")
    assert (only(found, "network").severity, hung.severity) == ("warning", "error")
    assert "(fuse.sshfs)" in only(found, "network").text
    assert found.headline == "not working: the store does not answer"


def test_the_store_beside_the_module_of_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node need not run, and a node of another store that runs is not taken for its own. Nothing is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_URL", raising=False)
    (tmp_path / "songs").mkdir()
    SqliteStore(tmp_path / "songs" / "chargehand.db").close()
    assert is_named(app="songs.jobs:hand")
    assert not is_named(app="jobs:hand")
    found = find_and_examine(app="songs.jobs:hand")
    assert found.store == str(tmp_path / "songs" / "chargehand.db")
    monkeypatch.setenv("CHARGEHAND_APP", "songs.jobs:hand")
    assert "--store" not in "".join(each.remedy for each in find_and_examine(app="songs.jobs:hand").findings)
    monkeypatch.setenv("CHARGEHAND_URL", str(tmp_path / "other.db"))
    assert find_and_examine(app="songs.jobs:hand").store == str(tmp_path / "other.db")


def test_stores_that_are_none(tmp_path: Path) -> None:  # spec: CL-4 # cause: no-store store-unusable unread
    nowhere = find_and_examine(str(tmp_path / "nowhere.db"))
    assert only(nowhere, "no-store").text == f"there is no store at {tmp_path}/nowhere.db"
    (tmp_path / "letter.db").write_text("Dear Sir or Madam, this is no database, and never was.")
    assert "is not an SQLite file" in only(find_and_examine(str(tmp_path / "letter.db")), "store-unusable").text
    assert "it is a folder" in only(find_and_examine(str(tmp_path)), "store-unusable").text
    store = SqliteStore(tmp_path / "torn.db")
    with store.transaction() as tx:
        tx.execute("DROP TABLE chargehand_pause")
    store.close()
    found = find_and_examine(str(tmp_path / "torn.db")).findings
    torn = next(each for each in found if each.cause == "unread")
    assert (torn.about, torn.severity) == ("pauses", "warning")
    assert "no such table" in torn.text


def test_a_folder_that_others_may_write(tmp_path: Path) -> None:  # spec: CL-4 SE-7 # cause: folder-shared
    SqliteStore(tmp_path / "chargehand.db").close()
    tmp_path.chmod(0o770)
    assert only(find_and_examine(str(tmp_path / "chargehand.db")), "folder-shared").severity == "note"
    tmp_path.chmod(0o1777)
    refused = only(find_and_examine(str(tmp_path / "chargehand.db")), "store-unusable")
    assert f"every user may write to the folder {tmp_path}" in refused.text


def damage(file: Path, how: str) -> None:
    """What happens to files: a copy that was not complete, a disk that was full, a wrong `dd`."""
    size = file.stat().st_size
    match how:
        case "empty":
            os.truncate(file, 0)
        case "cut":
            os.truncate(file, size * 2 // 3)
        case "header":
            with open(file, "r+b") as opened:
                opened.seek(16)
                opened.write(b"\xff\xfe")
        case "pages":
            with open(file, "r+b") as opened:
                opened.seek(4096)
                opened.write(os.urandom(size - 4096))
        case _:
            Path(f"{file}-wal").write_bytes(os.urandom(50_000))


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("empty", "{} is empty (0 bytes): it was truncated, or never used"),
        ("cut", "{} is truncated: "),
        ("header", "the header of {} is damaged"),
        ("pages", "{} is damaged ("),
        ("log", "the write-ahead log of {} ({}-wal) is damaged: SQLite ignores it"),
    ],
)
def test_damaged_stores(how: str, text: str, tmp_path: Path) -> None:  # spec: CL-4 # cause: store-damaged
    """Nothing else is said of them than that a backup is needed: not that they are old, nor to start a node."""
    path = tmp_path / "chargehand.db"
    SqliteStore(path).close()
    damage(path, how)
    before = path.read_bytes()
    found = find_and_examine(str(path))
    damaged = only(found, "store-damaged")
    assert damaged.text.startswith(text.format(path, path))
    assert "restore a backup" in damaged.remedy
    others = {"two-stores"} | ({"no-node"} if how == "log" else set())  # nodes of other tests may run
    assert {finding.cause for finding in found.findings} <= {"store-damaged", *others}
    assert path.read_bytes() == before


def crash_of(job: str, number: int, **facts: Any) -> CrashReport:
    known: dict[str, Any] = {
        "component": "worker:tag:0",
        "crew": "tag",
        "pid": 1,
        "reason": "crash",
        "text": "crash",
        **facts,
    }
    rest: dict[str, Any] = dict.fromkeys(("exit_code", "signal", "memory", "uptime_ms"))
    return CrashReport(
        id=f"c{number}", incarnation="i", job=job, charged=True, follows="", **{**rest, **known, **facts}
    )


def test_poison_jobs_and_replaced_workers(tmp_path: Path) -> None:  # spec: CL-4 WP-13 # cause: poison replaced failing
    """The jobs by name, without reports of them too (a job that killed its node has none); workers by what they did."""
    hand = chargehand(tmp_path / "chargehand.db")
    crew = hand.crew("tag", "scripted_handlers:Doer")
    alive, over, killed_node, harmless = (crew.enqueue({}).id for _ in range(4))
    failed = [crew.enqueue({}).id for _ in range(3)]
    with hand.transaction() as tx:
        row = CrewRow(name="tag", queue="tag", handler="h:H", workers=1, max_attempts=3, timeout_ms=None)
        tx.fleet.register(Holder("n", "l"), [row], {})
        ended = "UPDATE chargehand_job SET state = 'failed', reason = ?, crashes = ?, finished_ms = ? WHERE id = ?"
        tx.execute("UPDATE chargehand_job SET crashes = 2 WHERE id = ?", (alive,))
        tx.execute("UPDATE chargehand_job SET crashes = 1 WHERE id = ?", (harmless,))
        for job in (over, killed_node):
            tx.execute(ended, ("poison", 3, 1, job))
        for job in failed:
            tx.execute(ended, ("raised", 0, clock.now_ms() + 1000, job))
            tx.execute("UPDATE chargehand_job SET error = ? WHERE id = ?", ("KeyError: 'artist'\n", job))
        suspect = {"reason": "suspect", "text": "suspect: it failed 3 jobs in a row that others can do"}
        reports = [crash_of(job, n) for n, job in enumerate((alive, over, harmless))]
        tx.fleet.report([*reports, crash_of(failed[0], 9, **suspect, age_ms=120_000)], Holder("n", "l"))
    found = examine(hand)
    hand.close()
    poison = only(found, "poison")
    assert poison.text.startswith(f"3 jobs crashed several workers: {alive} (queue tag, twice), ")
    assert (over in poison.text, killed_node in poison.text, harmless in poison.text) == (True, True, False)
    assert f"chargehand crashes --job {alive}" in poison.remedy
    assert only(found, "replaced").text == (
        "worker:tag:0 was replaced 2 minutes ago: it failed 3 jobs in a row that others can do"
    )
    assert only(found, "failing").text == (
        "crew tag: 3 jobs failed and none was done since worker:tag:0 was replaced: KeyError: 'artist'"
    )


def test_nothing_is_changed_by_a_look(tmp_path: Path) -> None:  # spec: CL-4
    store = SqliteStore(tmp_path / "chargehand.db")
    store.close()
    before = (tmp_path / "chargehand.db").read_bytes()
    find_and_examine(str(tmp_path / "chargehand.db"))
    assert (tmp_path / "chargehand.db").read_bytes() == before
    assert not (tmp_path / "chargehand.db-node").exists()


def test_no_argument_and_no_application(tmp_path: Path) -> None:  # spec: CL-4
    """It takes no argument, and what lies in the folder is not imported, whatever it is called."""
    for name in ("msgspec", "apsw", "jobs"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    SqliteStore(tmp_path / "chargehand.db").close()
    told = doctor(cwd=tmp_path, PYTHONSAFEPATH="1")
    assert told.returncode == 1
    assert told.stdout.startswith("not working: no node runs\n")
    assert "error:   no node serves" in told.stdout
    assert "→ start one: chargehand work APP (as module:object), or your API" in told.stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = doctor(cwd=elsewhere, CHARGEHAND_URL="mysql://db/x")
    assert told.returncode == 2
    assert "is not supported" in told.stderr
    (elsewhere / ".env").write_text("CHARGEHAND_URL=../chargehand.db\n")
    told = doctor(cwd=elsewhere, PYTHONSAFEPATH="1")
    assert f"no node serves {tmp_path / 'chargehand.db'}" in told.stdout


def test_other_nodes_are_named_if_somebody_asks(tmp_path: Path, world: World) -> None:  # spec: CL-4
    own, empty = tmp_path / "own", tmp_path / "empty"
    for folder in (own, empty):
        folder.mkdir()
    SqliteStore(own / "chargehand.db").close()
    hand = chargehand(world.store)
    hand.crew("do", "scripted_handlers:Doer", workers=0)
    with hand.running():
        one, every = doctor(cwd=own), doctor("--all", cwd=own)
        found = doctor(cwd=empty)  # no store is named: that of a node is found, and there may be several
    # A finding may name one other node, if no node serves the store.
    named = [[line for line in told.stdout.splitlines() if line.startswith("also ")] for told in (one, every)]
    assert named[0] == []
    assert [line for line in named[1] if line.endswith(f" serves {world.store}")] != []
    assert str(world.store) in found.stdout


def small_disk(folder: Path, size: str) -> None:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)], check=True)


def test_a_full_disk(world: World) -> None:  # spec: CL-4 # cause: disk-full store-failing
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: needs root, to mount a small file system")
    disk = world.folder / "disk"
    small_disk(disk, "1m")
    try:
        hand = chargehand(disk / "chargehand.db")
        hand.crew("do", "scripted_handlers:Doer", workers=1)
        with hand.running():
            become(hand, "healthy")
            fill(disk / "ballast")
            eventually(lambda: (hand.status() or {})["store"]["failing"], what="the node says what is wrong")
            found = examine(hand)
            (disk / "ballast").unlink()
            assert only(found, "disk-full").text == f"the disk that holds {disk}/chargehand.db is full"
            assert "is full: make room" in only(found, "store-failing").text
            eventually(lambda: not (hand.status() or {})["store"]["failing"])
        hand.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_frozen_disk(world: World) -> None:  # spec: CL-4 SV-3 # cause: store-slow
    """A disk that takes nothing for a while: the node waits, and says so."""
    image, disk = world.folder / "image", world.folder / "disk"
    disk.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    made = ["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(disk)]
    if os.geteuid() != 0 or any(subprocess.run(words, capture_output=True, check=False).returncode for words in made):
        pytest.skip("NOT PROVEN HERE: needs root and a loop device, to have a disk of its own")
    try:
        hand = chargehand(disk / "chargehand.db")
        hand.crew("do", "scripted_handlers:Doer", workers=1)
        with hand.running():
            become(hand, "healthy")
            subprocess.run(["fsfreeze", "--freeze", str(disk)], check=True)
            try:
                eventually(lambda: ((hand.status() or {})["store"]["waiting_s"] or 0) > 2.5)
                found = examine(hand, patience=4)
            finally:
                subprocess.run(["fsfreeze", "--unfreeze", str(disk)], check=True)
            eventually(lambda: examine(hand).well)
        hand.close()
        assert only(found, "store-slow").text.startswith("the node has waited for the store for ")
        assert "store-locked" not in {finding.cause for finding in found.findings}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("address", ["x" * 300, "x" * 250, "d/" * 2100 + "x"])
def test_a_name_that_is_too_long(address: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is too long"):
        locate(str(tmp_path / address))


def test_every_cause_has_a_test_that_creates_it() -> None:  # spec: CL-4
    """`unexplained` is what must not be: nobody knows how to create it."""
    shown: set[str] = set()
    folder = Path(__file__).parent
    for file in (*folder.glob("test_*.py"), *folder.parent.glob("stores/test_*.py")):
        for words in re.findall(r"# cause: ([a-z -]+)$", file.read_text(), re.MULTILINE):
            shown |= set(words.split())
    assert set(CAUSES) - shown == {"unexplained"}
    assert shown <= set(CAUSES)
