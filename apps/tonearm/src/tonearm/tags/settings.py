"""Validates what to write and how: labels, modes, mappings onto standard tags. Pure."""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Mode = Literal["none", "minimal", "full"]
"""none: write nothing; minimal: labels; full: labels, scores and the version of the model."""

How = Literal["fill-empty", "add", "replace"]
"""fill-empty: only if the tag is empty; add: append to the existing values; replace: replace the existing values."""

BOOKKEEPING = frozenset({"added", "made"})
"""Names in the namespace that store what undo needs."""

RESERVED = BOOKKEEPING | {"scores", "model"}
GROUP = re.compile(r"[a-z][a-z0-9_]{0,31}")
TAG = re.compile(r"[A-Z][A-Z0-9_ ]{0,63}")

NOT_FOR_LABELS = frozenset(
    [
        "TITLE",
        "ARTIST",
        "ARTISTS",
        "ALBUM",
        "ALBUMARTIST",
        "COMPOSER",
        "DATE",
        "YEAR",
        "TRACK",
        "TRACKNUMBER",
        "DISC",
        "DISCNUMBER",
        "ISRC",
        "LYRICS",
        "COMMENT",
        "DESCRIPTION",
        "COPYRIGHT",
        "BPM",
        "COMPILATION",
        "METADATA_BLOCK_PICTURE",
        "COVERART",
    ]
)
"""Standard tags with another meaning than labels, or that are not plain text in every format."""


class TextError(ValueError):
    """A text of the user (label, mapping, rule) is invalid; the message says what and where."""


def check_label(text: str) -> str:
    """Returns the text if every format can store it unchanged."""
    if not text or text != text.strip():
        raise TextError(f"label {text!r}: empty, or with spaces around it")
    for letter in text:
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in "\ufeff\ufffe\uffff":
            raise TextError(f"label {text!r}: {letter!r} cannot be stored in tags; remove this character")
    return text


def check_group(group: str) -> str:
    """Returns the name of the group if it can be part of a tag name in every format."""
    if not GROUP.fullmatch(group) or group in RESERVED:
        wanted = "lower-case letters, digits and _, beginning with a letter"
        raise TextError(f"group {group!r}: a name consists of {wanted}, and must not be one of {sorted(RESERVED)}")
    return group


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one track by group, its scores by label, and the model."""

    groups: Mapping[str, tuple[str, ...]]
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    model: str = ""

    def __post_init__(self) -> None:
        for group, labels in self.groups.items():
            check_group(group)
            if len(set(labels)) < len(labels):
                raise TextError(f"group {group!r}: a label is listed twice: {', '.join(labels)}")
            for label in labels:
                check_label(label)
        for label, score in self.scores.items():
            check_label(label)
            if not math.isfinite(score):
                raise TextError(f"label {label!r}: the score {score} is not a number")
        if self.model:
            check_label(self.model)


@dataclass(frozen=True, slots=True)
class Onto:
    """Writes the labels of one group also to a standard tag that players read."""

    group: str
    tag: str
    how: How

    def __str__(self) -> str:
        return f"{self.group}={self.tag}:{self.how}"


def parse_onto(text: str) -> Onto:
    """Parses `mood=MOOD:fill-empty`. Raises TextError with the problem."""
    group, equals, rest = (part.strip() for part in text.partition("="))
    tag, _, how = (part.strip() for part in rest.partition(":"))
    if not equals or not group or not tag:
        raise TextError(f"mapping {text!r}: use the form group=TAG:how, for example mood=MOOD:fill-empty")
    check_group(group)
    tag = tag.upper()
    if not TAG.fullmatch(tag):
        raise TextError(f"mapping {text!r}: {tag!r} is not a tag name; use letters, digits, _ and spaces")
    if tag in NOT_FOR_LABELS or tag.startswith(("MUSICBRAINZ", "REPLAYGAIN", "TONEARM")):
        raise TextError(
            f"mapping {text!r}: {tag} cannot contain labels; use GENRE, MOOD, GROUPING or a name of your own"
        )
    match how:
        case "fill-empty" | "add" | "replace":
            return Onto(group, tag, how)
        case "":
            return Onto(group, tag, "fill-empty")
        case _:
            raise TextError(f"mapping {text!r}: {how!r} is not one of {', '.join(get_args(How))}")


def parse_ontos(texts: Iterable[str]) -> tuple[Onto, ...]:
    """Parses several mappings; two groups may share a tag if they are written in the same way."""
    ontos = tuple(parse_onto(text) for text in texts)
    seen: dict[str, Onto] = {}
    for onto in ontos:
        other = seen.setdefault(onto.tag, onto)
        if other.how != onto.how:
            raise TextError(
                f"mappings {str(other)!r} and {str(onto)!r}: one tag cannot be written in two ways; choose one"
            )
    return ontos


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for writing files; the defaults write nothing."""

    mode: Mode = "none"
    onto: tuple[Onto, ...] = ()
    keep_mtime: bool = False
    """If false, the modification time changes, so that players read the file again."""
    hard_links: bool = False
    """If true, a file with several hard links is replaced under this name only; the others keep the old content."""

    def tags(self) -> frozenset[str]:
        """Returns the standard tags that these settings may change."""
        return frozenset(onto.tag for onto in self.onto)
