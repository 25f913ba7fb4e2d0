"""One face for all formats: look at a file, write it anew as planned, and see whether all else stayed as it was."""

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
    """Everything in a file that is not Tonearm's: must be equal before and after."""

    audio: bytes
    """A digest of the audio, and of whatever stands beside the tags."""
    foreign: Any
    """Every other tag, as it is stored."""
    length: float
    """Seconds, as another reader counts them."""

    def difference(self, other: "Rest") -> str | None:
        """What is not the same, in words."""
        if self.audio != other.audio:
            return "the audio"
        if self.foreign != other.foreign:
            return "tags that are not Tonearm's"
        return None if self.length == other.length else "the duration"


def look(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Existing:
    """What the file says now, in the namespace, in these standard tags, and in those that were written before."""
    family = FAMILIES[kind]
    first: Existing = family.look(file, kind, frozenset(tags))
    more = {added.tag for added in records(first.own)} - first.standard.keys()
    return family.look(file, kind, first.standard.keys() | more) if more else first


def compose(source: BinaryIO, out: BinaryIO, kind: Kind, existing: Existing, plan: Plan) -> None:
    """Write the whole file anew, as planned, into an empty one."""
    FAMILIES[kind].compose(source, out, kind, existing, plan)
    out.flush()


def rest(file: BinaryIO, kind: Kind, tags: Iterable[str]) -> Rest:
    """All that must stay, but for these standard tags."""
    family = FAMILIES[kind]
    return Rest(family.audio(file, kind), family.foreign(file, kind, frozenset(tags)), opened(file, kind).info.length)
