"""What is to be written and how: labels, modes, mappings onto standard tags. Pure; says what is wrong with a text."""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Mode = Literal["none", "minimal", "full"]
"""none: nothing is written; minimal: the labels; full: labels, scores and the model's version."""

How = Literal["fill-empty", "add", "replace"]
"""fill-empty: only where nobody has written yet; add: beside what is there; replace: instead of what is there."""

BOOKKEEPING = frozenset({"added", "made"})
"""Names in the namespace that remember what undo needs."""

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
"""Standard tags that say something else than a label could, or are not plain text everywhere."""


class TextError(ValueError):
    """A text of the user's (label, mapping, rule) that says something impossible; the message says what and where."""


def check_label(text: str) -> str:
    """The text, if every format can hold it and give it back unchanged."""
    if not text or text != text.strip():
        raise TextError(f"label {text!r}: empty, or with spaces around it; write it without")
    for letter in text:
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in "\ufeff\ufffe\uffff":
            raise TextError(f"label {text!r}: {letter!r} cannot be stored in tags; remove that character")
    return text


def check_group(group: str) -> str:
    """The group's name, if it can name a tag in every format."""
    if not GROUP.fullmatch(group) or group in RESERVED:
        wanted = "lower-case letters, digits and _, beginning with a letter"
        raise TextError(f"group {group!r}: a group's name is made of {wanted}, and is none of {sorted(RESERVED)}")
    return group


@dataclass(frozen=True, slots=True)
class Labels:
    """What Tonearm says about one track: labels by group, scores by label, the model that says so."""

    groups: Mapping[str, tuple[str, ...]]
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    model: str = ""

    def __post_init__(self) -> None:
        for group, labels in self.groups.items():
            check_group(group)
            if len(set(labels)) < len(labels):
                raise TextError(f"group {group!r}: a label stands there twice: {', '.join(labels)}")
            for label in labels:
                check_label(label)
        for label, score in self.scores.items():
            check_label(label)
            if not math.isfinite(score):
                raise TextError(f"label {label!r}: its score is {score}, not a number")
        if self.model:
            check_label(self.model)


@dataclass(frozen=True, slots=True)
class Onto:
    """The labels of one group also go into a standard tag that players read."""

    group: str
    tag: str
    how: How

    def __str__(self) -> str:
        return f"{self.group}={self.tag}:{self.how}"


def parse_onto(text: str) -> Onto:
    """`mood=MOOD:fill-empty` as a value; TextError says what is wrong with it."""
    group, equals, rest = (part.strip() for part in text.partition("="))
    tag, _, how = (part.strip() for part in rest.partition(":"))
    if not equals or not group or not tag:
        raise TextError(f"mapping {text!r}: write it as group=TAG:how, for example mood=MOOD:fill-empty")
    check_group(group)
    tag = tag.upper()
    if not TAG.fullmatch(tag):
        raise TextError(f"mapping {text!r}: {tag!r} is not the name of a tag; use letters, digits, _ and spaces")
    if tag in NOT_FOR_LABELS or tag.startswith(("MUSICBRAINZ", "REPLAYGAIN", "TONEARM")):
        raise TextError(
            f"mapping {text!r}: {tag} is no place for labels; GENRE, MOOD, GROUPING or a name of your own are"
        )
    match how:
        case "fill-empty" | "add" | "replace":
            return Onto(group, tag, how)
        case "":
            return Onto(group, tag, "fill-empty")
        case _:
            raise TextError(f"mapping {text!r}: {how!r} is none of {', '.join(get_args(How))}")


def parse_ontos(texts: Iterable[str]) -> tuple[Onto, ...]:
    """Several mappings; two groups may share a tag if they agree on how."""
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
    """How files are written; the defaults write nothing."""

    mode: Mode = "none"
    onto: tuple[Onto, ...] = ()
    keep_mtime: bool = False
    """False: players notice by the time of change that there is something to read again."""
    hard_links: bool = False
    """True: a file with several names is replaced under this one alone; the others keep the old content."""

    def tags(self) -> frozenset[str]:
        """The standard tags that these settings may touch."""
        return frozenset(onto.tag for onto in self.onto)
