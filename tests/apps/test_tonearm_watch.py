"""Watching a library: what changes in its folders is noticed, and scanned when it has come to rest."""

import os
import shutil
from pathlib import Path

import pytest
import shelves

from chargehand import JobFilter
from chargehand.testing import perform
from tonearm import crews
from tonearm.handlers import Look, Scanner
from tonearm.watch import Tree, Watcher


def later(folder: Path) -> None:
    """The folder's time is another one, however coarse the file system's clock is."""
    now = os.stat(folder).st_mtime_ns
    os.utime(folder, ns=(now, now + 10_000_000))


def test_whatever_is_added_removed_or_renamed_is_noticed_once(tmp_path: Path) -> None:
    # spec: TA-2
    root = tmp_path / "music"
    inner, new = root / "one" / "two", root / "new" / "deep"
    inner.mkdir(parents=True)
    tree = Tree(os.fsencode(root))
    assert not tree.changed()
    for where, change in (
        (inner, lambda: (inner / "song.mp3").touch()),
        (inner, lambda: (inner / "song.mp3").rename(inner / "other.mp3")),
        (root, lambda: new.mkdir(parents=True)),
        (new, lambda: (new / "song.mp3").touch()),
        (root, lambda: shutil.rmtree(root / "new")),
    ):
        change()
        later(where)
        assert tree.changed()
        assert not tree.changed()
    root.rename(tmp_path / "away")
    assert not tree.changed(), "a disk that is not mounted is no change"


def test_a_changed_folder_is_scanned_when_it_has_come_to_rest(tmp_path: Path) -> None:
    # spec: TA-2
    music = tmp_path / "music"
    shelves.songs(music)
    library, folder = shelves.opened(tmp_path / "home", music)
    all_crews = crews.build(tmp_path / "home")
    all_crews.hand.open()
    watcher = Watcher(all_crews, [folder])

    def scans() -> int:
        return len(all_crews.hand.jobs(JobFilter(queue="library")))

    watcher.step()
    for _ in range(2):
        later(music / "inside")
        watcher.step()
        assert scans() == 0, "it is still being changed"
    watcher.step()
    watcher.step()
    assert scans() == 1
    all_crews.hand.close()
    library.close()


def test_a_scan_that_found_something_to_hear_wakes_the_tag_crew_and_another_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: TA-1, TA-2
    shelves.songs(tmp_path / "music")
    library, folder = shelves.opened(tmp_path / "home", tmp_path / "music")
    monkeypatch.setenv("TONEARM_HOME", str(tmp_path / "home"))
    all_crews = crews.build(tmp_path / "home")

    def wakes() -> int:
        return len(all_crews.hand.jobs(JobFilter(queue="tag")))

    assert perform(Scanner, Look(folder.id), hand=all_crews.hand)["files"] == 7
    assert wakes() == 1
    (job,) = all_crews.hand.jobs(JobFilter(queue="tag"))
    all_crews.tag.ref(job.id).cancel()
    shelves.hear_all(library)
    perform(Scanner, Look(folder.id), hand=all_crews.hand)
    assert wakes() == 1
    all_crews.hand.close()
    library.close()
