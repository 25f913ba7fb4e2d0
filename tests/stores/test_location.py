"""Tests for the identity of a store: its address and the files beside it."""

from pathlib import Path

import pytest

from chargehand.errors import StoreError
from chargehand.stores.location import Location, locate, locate_unread, location_of_node_lock


def test_the_files_of_a_store_stand_beside_it(folder: Path) -> None:
    found = locate(f"sqlite:///{folder}/s.db")
    assert str(found) == found.url == f"{folder}/s.db"
    names = [file.name for file in (found.lock, found.node, found.lives, found.socket)]
    assert names == ["s.db-lock", "s.db-node", "s.db-lives", "s.db-sock"]
    assert {file.parent for file in (found.lock, found.node, found.lives, found.socket)} == {folder}


def test_every_name_of_a_store_is_one_location(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    through, direct = locate(f"{folder}/link/s.db"), locate(f"{folder}/real/s.db")
    assert through == direct
    assert through.mark == direct.mark
    assert locate(f"{folder}/other.db").mark != direct.mark


def test_a_location_that_is_not_read_follows_no_link(folder: Path) -> None:
    (folder / "link.db").symlink_to(folder / "real.db")
    unread = locate_unread(f"{folder}/link.db")
    assert unread.url == f"{folder}/link.db"
    assert unread.resolved() == locate(f"{folder}/real.db")


def test_a_store_exists_once_its_file_does(folder: Path) -> None:
    found = locate(f"{folder}/s.db")
    assert not found.exists()
    found.path.touch()
    assert found.exists()


@pytest.mark.parametrize(("file", "expected"), [("/a/s.db-node", Location(Path("/a/s.db"))), ("/a/s.db-lock", None)])
def test_a_node_lock_names_its_store(file: str, expected: Location | None) -> None:
    assert location_of_node_lock(file) == expected


def test_a_state_folder_that_cannot_be_made_is_answered_with_the_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without a home, for a store on a server."""
    (folder / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    with pytest.raises(StoreError, match=r"file.* cannot be used: Not a directory; .*: set XDG_STATE_HOME to a folder"):
        locate("postgresql://music@db/music")
