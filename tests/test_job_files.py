"""The folders of flows and jobs: made private, limited, removed; nothing outside their root is touched."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand import Chargehand, ChargehandError, ConfigurationError, FolderFull, PayloadError
from chargehand.model.job import Claim
from chargehand.node.job_files import JobFilesThread, sweep
from chargehand.stores import open_store
from chargehand.system.job_files import FLOWS, JOBS, LONGEST_NAME, SCRATCH, JobFiles, name_of, names, owner_of, remove


# spec: FL-5
@given(st.text(min_size=1, max_size=20))
def test_every_id_has_a_folder_of_its_own_below_the_root(owner: str) -> None:
    name = name_of(owner)
    assert owner_of(name) == owner
    assert "/" not in name
    assert name not in (".", "..")
    assert len(name.encode()) <= LONGEST_NAME


def test_an_id_that_is_too_long_for_a_folder_is_refused() -> None:
    with pytest.raises(PayloadError, match="too long"):  # the job fails; ConfigurationError would end the worker
        name_of("ü" * 200)
    assert [owner_of(name) for name in ("a.b", "%", "%2", "%zz", "%61", "%2e")] == [None] * 6


# spec: FL-5
def test_without_a_root_every_use_is_refused_in_words() -> None:
    with pytest.raises(ConfigurationError, match="set CHARGEHAND_FILES"):
        JobFiles(None).folder(None, "j")
    with pytest.raises(ConfigurationError, match="set CHARGEHAND_FILES"):
        JobFiles(None).scratch("a", 1)


# spec: FL-5
def test_folders_are_private_and_a_link_is_not_followed(tmp_path: Path) -> None:
    files = JobFiles(str(tmp_path / "root"))
    folder = files.folder("f/../..", "j")
    assert folder == files.folder("f/../..", "other")
    assert folder.parent == tmp_path / "root" / FLOWS
    assert files.folder(None, "j").parent == tmp_path / "root" / JOBS
    for path in (folder, folder.parent, folder.parent.parent):
        assert os.stat(path).st_mode & 0o777 == 0o700
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "root" / JOBS / "linked").symlink_to(outside)
    (tmp_path / "root" / JOBS / "file").touch()
    for name in ("linked", "file"):
        with pytest.raises(ChargehandError, match=rf"{JOBS}/{name} is not a folder") as refused:
            files.folder(None, name)
        assert type(refused.value) is ChargehandError, "a ConfigurationError would end the worker"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / JOBS).symlink_to(outside)
    with pytest.raises(ConfigurationError, match="is not a folder"):
        JobFiles(str(tmp_path / "other")).folder(None, "j")
    assert list(outside.iterdir()) == []


# spec: FL-5
def test_a_disk_without_room_for_a_folder_fails_the_attempt_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(ChargehandError, match="cannot be made: No space left") as refused:
        JobFiles(str(tmp_path / "root")).folder(None, "j")
    assert type(refused.value) is ChargehandError


# spec: FL-5
def test_what_is_removed_is_the_link_and_not_where_it_leads(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    scratch = JobFiles(str(root)).scratch("a", 7)
    (scratch / "deep").mkdir()
    (scratch / "deep" / "link").symlink_to(outside)
    (root / SCRATCH / "8").symlink_to(outside)
    assert remove(str(root), SCRATCH, ["a.7", "8", "9"]) == 2
    assert names(str(root), SCRATCH) == []
    assert (outside / "precious").exists()
    (root / SCRATCH).rmdir()
    (root / SCRATCH).symlink_to(outside)
    assert remove(str(root), SCRATCH, ["precious"]) == 0
    assert (outside / "precious").exists()


def claim(job: str, number: int) -> Claim:
    return Claim(
        id=job, seq=1, number=number, queue="q", payload="null", label=None, priority=0, failures=0, max_attempts=3,
        crashes=0, timeout_ms=None,
    )  # fmt: skip


# spec: FL-5
def test_the_thread_removes_folders_however_deep_they_are(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    deep = os.open(JobFiles(str(root)).scratch("a", 7), os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("in", dir_fd=deep)
        os.symlink(outside, "link", dir_fd=deep)
        above, deep = deep, os.open("in", os.O_RDONLY, dir_fd=deep)
        os.close(above)
    os.close(deep)
    JobFiles(str(root)).scratch("b", 8)
    thread = JobFilesThread(str(root), lambda: open_store(f"{tmp_path / 's.db'}"))
    thread.start()
    thread.left([claim("a", 7)])
    thread.left([claim("b", 8)])
    thread.stop(20)
    assert not thread.is_alive()
    assert names(str(root), SCRATCH) == []
    assert (outside / "precious").exists()


# spec: FL-5
def test_a_folder_at_its_limit_is_full_until_files_are_removed(tmp_path: Path) -> None:
    files = JobFiles(str(tmp_path / "root"), limit=1000)
    folder = files.folder("f", "j")
    (folder / "inner").mkdir()
    (folder / "inner" / "large").write_bytes(bytes(1000))
    with pytest.raises(FolderFull, match=r"have 1,000 bytes; CHARGEHAND_FILES_LIMIT allows 1,000"):
        files.folder("f", "j")
    assert files.folder("g", "j") != folder
    (folder / "inner" / "large").unlink()
    assert files.folder("f", "j") == folder


# spec: FL-5
def test_a_sweep_removes_what_belongs_to_nothing_in_the_store(tmp_path: Path) -> None:
    hand = Chargehand(tmp_path / "s.db")
    crew = hand.crew("a", "nowhere:Nothing")
    with hand.flow("kept") as flow:
        flow.enqueue(crew, 1)
    ref = crew.enqueue(2)
    root = hand.location.job_files(None)
    assert root is not None
    assert root == f"{tmp_path / 's.db'}-files"
    files = JobFiles(root)
    kept = {files.folder(flow.id, "x"), files.folder(None, ref.id)}
    gone = {files.folder("gone", "x"), files.folder(None, "gone"), files.scratch("gone", 12345)}
    (Path(root) / FLOWS / "not.ours").mkdir()
    for folder in gone:
        (folder / "file").touch()
    assert sweep(root, lambda: open_store(hand.url)) == 3
    assert all(folder.exists() for folder in kept)
    assert not any(folder.exists() for folder in gone)
    assert (Path(root) / FLOWS / "not.ours").exists()
    hand.close()


# spec: FL-5
def test_a_sweep_leaves_the_folders_of_other_stores_alone(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    hands = [Chargehand(tmp_path / f"{name}.db") for name in "ab"]
    stores = [(lambda url=hand.url: open_store(url), hand.location.files_owner(root)) for hand in hands]
    crews = [hand.crew("a", "nowhere:Nothing") for hand in hands]
    jobs = [crew.enqueue(1).id for crew in crews]
    old = JobFiles(root).folder(None, jobs[0])  # as an older version has made it
    files = [JobFiles(root, owner=owner) for _, owner in stores]
    kept = [made.folder(None, job) for made, job in zip(files, jobs, strict=True)]
    assert old == kept[0]
    gone = [(made.folder(f"gone{at}", "x"), made.scratch(f"gone{at}", 7)) for at, made in enumerate(files)]
    assert [sweep(root, *stores[0]), *map(Path.exists, gone[0])] == [2, False, False]
    assert all(folder.exists() for folder in (*kept, *gone[1]))
    assert [sweep(root, *stores[1]), *map(Path.exists, gone[1])] == [2, False, False]
    hands[0].cancel(jobs[0])
    hands[0].delete(jobs[0])
    assert [sweep(root, *stores[1]), sweep(root, *stores[0]), sweep(root, *stores[0])] == [0, 1, 0]
    assert [folder.exists() for folder in kept] == [False, True]
    owners = [name for _, _, names in os.walk(tmp_path / "root" / "owners") for name in names]
    assert owners == [jobs[1]], "what is gone is forgotten"
    for hand in hands:
        hand.close()


# spec: FL-5
def test_a_folder_that_an_older_version_has_made_is_removed_with_its_job(tmp_path: Path) -> None:
    hand = Chargehand(tmp_path / "s.db")
    job = hand.crew("a", "nowhere:Nothing").enqueue(1).id
    root = str(tmp_path / "root")
    folder = JobFiles(root).folder(None, job)
    owner = hand.location.files_owner(root)
    (tmp_path / "root" / JOBS / "not.ours").mkdir()
    assert sweep(root, lambda: open_store(hand.url), owner) == 0
    hand.cancel(job)
    hand.delete(job)
    assert (sweep(root, lambda: open_store(hand.url), owner), folder.exists()) == (1, False)
    assert hand.location.files_owner(hand.location.job_files(None)) is None, "the folder beside the store is its own"
    hand.close()
