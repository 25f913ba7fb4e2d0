"""Writes the archive for a bug report: the findings, and the facts about the store and its node, without secrets."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from chargehand import clock
from chargehand.doctor import examine
from chargehand.doctor.redaction import without_words
from chargehand.errors import ChargehandError
from chargehand.model.doctor.diagnosis import Diagnosis

PATIENCE = 20.0
"""The timeout for collecting, in seconds; what was found by then is written."""


def write(path: Path, found: Diagnosis, given: str | None = None) -> None:
    """Writes the archive, readable by this user only. Raises ChargehandError if the file exists or is not writable.

    `given` is the address of the store on the command line.
    """
    told = examine.sections(found.store, PATIENCE, given) if found.store else {}
    files: dict[str, Any] = {"diagnosis.json": _codes(found), **told}
    left_out = {name: files.pop(name) for name in ("stuck", "patience", "refused") if name in files}
    if left_out:
        files["left out.json"] = left_out
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in files.items():
                _add(archive, f"chargehand-doctor/{name}", content)
    except OSError as error:
        raise ChargehandError(f"{path} cannot be written: {error.strerror or error}") from error


def _codes(found: Diagnosis) -> dict[str, Any]:
    """Returns a diagnosis without its sentences, which may quote the errors of jobs."""
    names = ("severity", "cause", "about")
    findings = [{name: getattr(finding, name) for name in names} for finding in found.findings]
    return without_words({"store": found.store, "status": found.status, "at_ms": found.at_ms, "findings": findings})


def _add(archive: tarfile.TarFile, name: str, content: Any) -> None:
    text = content if isinstance(content, str) else msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
    data = text.encode(errors="replace")
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = len(data), 0o600, clock.now_ms() // 1000
    archive.addfile(about, io.BytesIO(data))
