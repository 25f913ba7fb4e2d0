"""A common interface to all formats: inspect a file, write it as planned, and verify that the rest is unchanged."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

from tonearm.tags import in_id3, in_mp4, in_vorbis
from tonearm.tags.kinds import Kind, opened
from tonearm.tags.plan import Existing, Plan, records

FAMILIES: dict[Kind, ModuleType] = {
    "mp3": in_id3, "wav": in_id3, "aiff": in_id3,
    "flac": in_vorbis, "vorbis": in_vorbis, "opus": in_vorbis,
    "m4a": in_mp4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rest:
    """Everything in a file that does not belong to Tonearm; must be equal before and after writing."""

    audio: bytes
    """A digest of the audio and of all data next to the tags."""
    foreign: Any
    """All other tags as stored."""
    length: float
    """Seconds according to another reader."""

    def difference(self, other: "Rest") -> str | None:
        """Returns a description of the first difference, or None."""
        if self.audio != other.audio:
            return "the audio"
        if self.foreign != other.foreign:
            return "tags that are not Tonearm's"
        return None if self.length == other.length else "the duration"


def look(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Existing:
    """Returns the current content of the namespace, of these standard tags, and of those written before."""
    family = FAMILIES[kind]
    first: Existing = family.look(file, kind, frozenset(tags))
    more = {added.tag for added in records(first.own)} - first.standard.keys()
    return family.look(file, kind, first.standard.keys() | more) if more else first


def compose(source: BinaryIO, out: BinaryIO, kind: Kind, existing: Existing, plan: Plan) -> None:
    """Writes the whole file, as planned, into an empty file."""
    FAMILIES[kind].compose(source, out, kind, existing, plan)
    out.flush()


def rest(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Rest:
    """Returns everything that must stay, except for these standard tags."""
    family = FAMILIES[kind]
    return Rest(family.audio(file, kind), family.foreign(file, kind, frozenset(tags)), opened(file, kind).info.length)
