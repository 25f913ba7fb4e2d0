"""The fingerprint of a crew's code: it changes with what is deployed or installed, and with nothing else."""

import os
import py_compile
from collections.abc import Callable
from pathlib import Path

import pytest

from chargehand.node.fingerprint import fingerprint
from chargehand.settings.plan import CrewPlan

# spec: WP-8 RP-8


class Place:
    """An application with a site folder and another folder on its path of modules."""

    def __init__(self, folder: Path) -> None:
        self.application, self.site, self.library = folder / "app", folder / "site-packages", folder / "lib"
        for made in (self.application, self.site / "old-1.0.dist-info", self.site / "old", self.library):
            made.mkdir(parents=True)
        (self.site / "old" / "__init__.py").touch()
        (self.application / "tagging.py").write_text("import numpy")
        os.utime(self.site / "old-1.0.dist-info", (1, 1))

    def digest(self) -> str:
        plan = CrewPlan(name="tag", queue="tag", handler="tagging:Tagger")
        return fingerprint(plan, [str(each) for each in (self.application, self.site, self.library, "/nowhere.zip")])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def package(folder: Path) -> None:
    folder.mkdir()
    (folder / "__init__.py").touch()


CHANGES: dict[str, Callable[[Place], object]] = {
    "a distribution is installed": lambda at: (at.site / "numpy-2.0.dist-info").mkdir(),
    "the same version is installed again": lambda at: os.utime(at.site / "old-1.0.dist-info", (2, 2)),
    "a distribution is removed": lambda at: (at.site / "old-1.0.dist-info").rmdir(),
    "a module is copied into the site folder": lambda at: (at.site / "numpy.py").touch(),
    "an extension module is copied": lambda at: (at.site / "numpy.cpython-311-x86_64-linux-gnu.so").touch(),
    "a package is copied into the site folder": lambda at: package(at.site / "numpy"),
    "a module is put on the path": lambda at: (at.library / "numpy.py").touch(),
    "a package is put on the path": lambda at: package(at.library / "numpy"),
    "a module of the application changes": lambda at: (at.application / "tagging.py").write_text("import math"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_installed_or_deployed_changes_it(place: Place, change: Callable[[Place], object]) -> None:
    before = place.digest()
    assert place.digest() == before
    change(place)
    assert place.digest() != before


USE: dict[str, Callable[[Place], object]] = {
    "the store and its files": lambda at: [
        (at.application / f"chargehand.db{end}").touch() for end in ("", "-wal", "-lock", "-sock")
    ],
    "a folder of data": lambda at: (at.application / "data").mkdir(),
    "caches of modules": lambda at: [
        (folder / "__pycache__").mkdir() for folder in (at.application, at.site, at.library)
    ],
    "a compiled module": lambda at: py_compile.compile(str(at.site / "old" / "__init__.py")),
    "the time of the site folder": lambda at: os.utime(at.site, (5, 5)),
    "the time of a package": lambda at: os.utime(at.site / "old", (5, 5)),
    "a name that is not UTF-8": lambda at: os.mkdir(os.fsencode(at.application) + b"/\xff"),
}


@pytest.mark.parametrize("use", USE.values(), ids=USE)
def test_running_the_application_does_not_change_it(place: Place, use: Callable[[Place], object]) -> None:
    before = place.digest()
    use(place)
    assert place.digest() == before


def test_a_module_whose_name_is_not_utf8_is_no_error(place: Place) -> None:
    (Path(os.fsdecode(os.fsencode(place.library) + b"/\xff.py"))).touch()
    assert place.digest()


def test_the_order_of_folders_does_not_matter(place: Place) -> None:
    """Hosts of one application may have different paths: a console script, `python -m`."""
    plan = CrewPlan(name="tag", queue="tag", handler="tagging:Tagger")
    folders = [str(each) for each in (place.application, place.site, place.library)]
    assert fingerprint(plan, folders) == fingerprint(plan, [*reversed(folders), folders[0]])
