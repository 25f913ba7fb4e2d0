"""Accounts for every film, file and row of Adreel after the kills.

What an analysis leaves is compared with what the same film left while nothing was killed.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from adreel.catalogue import FilmRow
from adreel.service import Service
from chargehand.model.flows import FlowFilter, FlowRecord

OWN = ("id", "name", "took", "film")
"""Fields that differ between two analyses of the same content."""
SOURCE = re.compile(r"source\.\w+")
BESIDE = re.compile(r"adreel\.db(-\w+)?")
"""The store and the files beside it."""
NOTICE = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ INFO ")
"""A line of Adreel's own log; warnings and errors are violations."""
Left = Mapping[str, Any]


@dataclass(frozen=True)
class Analysis:
    """What an analysis leaves: its files, and the number of its jobs."""

    files: Left
    jobs: int


def left_by(folder: Path) -> Left:
    """Returns the files of a film: records without what differs between two analyses, others by their digest."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() or not any(path.iterdir())
    }


def _content(path: Path) -> Any:
    if path.is_dir():
        return "an empty folder"
    content = path.read_bytes()
    if path.suffix == ".json":
        return _without_own(msgspec.json.decode(content))
    return hashlib.sha256(content).hexdigest()


def _without_own(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_own(each) for name, each in value.items() if name not in OWN}  # pyright: ignore
        case list():
            return [_without_own(each) for each in value]  # pyright: ignore
        case _:
            return value


def differences(found: Left, expected: Left) -> Iterator[str]:
    """Yields how the files of a film differ from those of an undisturbed analysis."""
    for name in sorted({*found, *expected}):
        if name not in found:
            yield f"the file {name} is missing"
        elif name not in expected:
            yield f"the file {name} is too many"
        elif found[name] != expected[name]:
            where, one, other = first_difference(found[name], expected[name])
            yield f"the file {name} differs{where}: {one!r:.150}, not {other!r:.150}"


def first_difference(one: Any, other: Any, where: str = "") -> tuple[str, Any, Any]:
    """Returns where two records differ first, and the two values there."""
    names: list[Any] = []
    if type(one) is type(other) is dict and set(one) == set(other):  # pyright: ignore[reportUnknownArgumentType]
        names = sorted(one)  # pyright: ignore[reportUnknownArgumentType]
    elif type(one) is type(other) is list and len(one) == len(other):  # pyright: ignore[reportUnknownArgumentType]
        names = list(range(len(one)))  # pyright: ignore[reportUnknownArgumentType]
    for name in names:
        if one[name] != other[name]:
            return first_difference(one[name], other[name], f"{where} / {name}")
    return where, one, other


def flows_of(service: Service) -> dict[str, FlowRecord]:
    """Returns every flow in the store."""
    found: dict[str, FlowRecord] = {}
    before = None
    while page := service.crews.hand.flows(FlowFilter(limit=500, before=before)):
        found |= {flow.id: flow for flow in page}
        before = page[-1].id
    return found


def rows_of(service: Service) -> list[FilmRow]:
    """Returns every film in the table."""
    found: list[FilmRow] = []
    while page := service.films.find(before=found[-1].id if found else "", limit=200):
        found += page
    return found


def wrong_flows(rows: list[FilmRow], flows: Mapping[str, FlowRecord]) -> Iterator[str]:
    """Yields flows that belong to no film, and films that have none."""
    known = {flow for row in rows for flow in (*row.earlier, row.flow)}
    yield from (
        f"flow {flow} ({record.name}) belongs to no film" for flow, record in flows.items() if flow not in known
    )
    yield from (f"film {row.name} has no flow" for row in rows if row.flow not in flows)


def wrong_end(row: FilmRow, flow: FlowRecord, told: Counter[str], jobs: int) -> Iterator[str]:
    """Yields what contradicts that a film has ended well."""
    if (row.state, flow.state, flow.counts.done) != ("done", "done", jobs):
        yield f"{row.name} is {row.state} ({row.error}); its flow is {flow.state}: {flow.counts}, not {jobs} jobs done"
    if row.ends != flow.ends:
        yield f"{row.name}: the row describes end {row.ends} of the flow, which has ended {flow.ends} times"
    if not told[f"{row.id}-{flow.ends}"]:
        yield f"{row.name}: the webhook was not called for its end {flow.ends}"


def wrong_calls(rows: list[FilmRow], told: Counter[str], deleted: set[str]) -> Iterator[str]:
    """Yields calls of the webhook for ends that have not been."""
    ends = {row.id: row.ends for row in rows}
    for key in told:
        film, _, end = key.rpartition("-")
        if film not in deleted and not 1 <= int(end) <= ends.get(film, 0):
            yield f"the webhook was called for {key}, which has not been"


def strangers(home: Path, temporary: Path, films: set[str]) -> Iterator[str]:
    """Yields files in the data folder, and temporary ones, that belong to no film."""
    for path in home.iterdir():
        if path.name not in ("films", "uploads") and not BESIDE.fullmatch(path.name):
            yield f"{path.name} is in the data folder"
    yield from (
        f"films/{path.name} belongs to no film" for path in (home / "films").iterdir() if path.name not in films
    )
    yield from (f"uploads/{path.name} is left" for path in (home / "uploads").iterdir())
    scratch = home / "adreel.db-files"
    yield from (f"{path.relative_to(home)} is left" for path in scratch.rglob("*") if path != scratch / "scratch")
    yield from (f"the temporary file {path.name} is left" for path in temporary.iterdir())
