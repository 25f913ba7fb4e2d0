"""Reads and writes the files of an analysis. A file is complete or absent: it is written elsewhere and renamed."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from adreel.media.limits import Refused
from adreel.records import Code

Kind = TypeVar("Kind")


def write(value: Any, name: str, scratch: Path, folder: Path) -> None:
    """Writes a record as JSON."""
    put(msgspec.json.encode(value), name, scratch, folder)


def put(content: bytes, name: str, scratch: Path, folder: Path) -> None:
    """Writes a file in `scratch` and renames it into `folder`."""
    draft = scratch / name.replace("/", "-")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    target = folder / name
    # Without `parents`: a film that was deleted meanwhile must not come back.
    target.parent.mkdir(exist_ok=True)
    _rename(draft, target)


def put_folder(name: str, scratch: Path, folder: Path) -> None:
    """Moves a subfolder from `scratch` into `folder`, where it replaces that of an earlier attempt."""
    _remove(folder / name)
    _rename(scratch / name, folder / name)


def _rename(source: Path, target: Path) -> None:
    """Renames a file or folder; copies it first if the target is on another file system."""
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        near = target.with_name(f".{target.name}.new")
        _remove(near)
        if source.is_dir():
            shutil.copytree(source, near)
        else:
            shutil.copyfile(source, near)
        near.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read(name: str, kind: type[Kind], folder: Path) -> Kind:
    """Reads a record. Raises Refused if an earlier stage did not leave it."""
    try:
        return msgspec.json.decode((folder / name).read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise Refused(Code.INCOMPLETE, f"the file {name} of the analysis is missing: analyse the film again") from error
    except msgspec.DecodeError as error:
        raise Refused(Code.INCOMPLETE, f"the file {name} of the analysis is not readable: {error}") from error
