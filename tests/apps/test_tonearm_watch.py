"""Watching a library: what changes in its folders is noticed, and scanned when it has come to rest."""

import os
import shutil
from pathlib import Path

import shelves

from chargehand import JobFilter
from chargehand.testing import eventually
from tonearm import crews, report
from tonearm.handlers import Look
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


def test_a_scan_by_the_crew_wakes_who_sleeps_and_would_listen(tmp_path: Path) -> None:
    # spec: TA-1, TA-2, WK-10
    music = tmp_path / "music"
    music.mkdir()
    library, folder = shelves.opened(tmp_path / "home", music)
    all_crews = crews.build(tmp_path / "home", workers=1, idle_exit=0.2, tagger="refusing_tagger:Deaf")
    all_crews.hand.log_level = "CRITICAL"

    def listeners() -> list[str]:
        view = all_crews.hand.status() or {"workers": []}
        return [worker["reason"] for worker in view["workers"] if worker["crew"] == "tag"]

    with all_crews.hand.running():
        eventually(lambda: listeners() == ["idle"])
        shelves.songs(music)
        all_crews.library.enqueue(Look(folder.id)).wait(timeout=60)
        eventually(lambda: not report.progress(library).waiting)
    all_crews.hand.close()
    library.close()
