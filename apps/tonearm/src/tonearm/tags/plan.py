"""Computes the changes from the current to the wanted tags of a file. Pure: no file access."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tonearm.tags.settings import BOOKKEEPING, How, Labels, Settings

Values = tuple[str, ...]
NUMBERED = re.compile(r"^\(\d+\)(?=.)")
"""The notation of genres in old ID3 tags: (17)Rock."""


class Added(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values added to one standard tag; stored in the file itself, so that undo needs nothing else."""

    tag: str
    values: Values
    before: Values = ()
    """The values that `replace` replaced."""


@dataclass(frozen=True, slots=True)
class Existing:
    """The current tags of a file, as far as Tonearm needs them."""

    own: Mapping[str, Values]
    """The namespace: name to values."""
    standard: Mapping[str, Values]
    """Standard tags in the current mappings, and in those of the last write."""
    bare: bool = False
    """Whether the file has no tag of its format at all, so that undo removes the whole tag."""


@dataclass(frozen=True, slots=True)
class Change:
    """One tag before and after; an empty value means that it does not exist."""

    tag: str
    before: Values
    after: Values

    def __str__(self) -> str:
        match self.before, self.after:
            case (), after:
                return f"+ {self.tag}: {', '.join(after)}"
            case before, ():
                return f"- {self.tag}: {', '.join(before)}"
            case before, after:
                return f"~ {self.tag}: {', '.join(before)} → {', '.join(after)}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned tags of a file, and the differences from the current ones."""

    own: Mapping[str, Values]
    standard: Mapping[str, Values]
    changes: tuple[Change, ...]

    def lines(self) -> list[str]:
        """Returns one line per change for people, without bookkeeping."""
        hidden = {f"tonearm:{name}" for name in BOOKKEEPING}
        return [str(change) for change in self.changes if change.tag not in hidden]

    def data(self) -> list[dict[str, object]]:
        """Returns every change as plain data for programs."""
        return [{"tag": c.tag, "before": list(c.before), "after": list(c.after)} for c in self.changes]


def records(own: Mapping[str, Values]) -> tuple[Added, ...]:
    """Returns the recorded mappings. A damaged record is ignored, and its tag stays unchanged."""
    found: list[Added] = []
    for text in own.get("added", ()):
        try:
            found.append(msgspec.json.decode(text, type=Added))
        except msgspec.DecodeError:
            continue
    return tuple(found)


def without(values: Values, added: Added) -> Values:
    """Returns the standard tag without Tonearm's values; later changes by other programs stay."""
    left = list(values)
    ours = 0
    for value in added.values:
        if value in left:
            left.remove(value)
            ours += 1
    return (*added.before, *left) if ours else tuple(left)


def onto(base: Values, labels: Values, how: How) -> tuple[Values, Added | None]:
    """Returns the tag with the labels, and the record for undo (the caller sets its tag)."""
    known = {NUMBERED.sub("", value).casefold() for value in base}
    new = tuple(label for label in labels if label.casefold() not in known)
    match how:
        case "fill-empty" if not base and labels:
            return labels, Added("", labels)
        case "add" if new:
            return (*base, *new), Added("", new)
        case "replace" if labels and labels != base:
            return labels, Added("", labels, base)
        case _:
            return base, None


def to_write(existing: Existing, labels: Labels, settings: Settings) -> Plan:
    """Returns the changes for writing these labels; none in mode none."""
    if settings.mode == "none":
        return Plan(existing.own, existing.standard, ())
    own = {group: values for group, values in labels.groups.items() if values}
    if settings.mode == "full":
        ranked = sorted(labels.scores.items(), key=lambda pair: (-pair[1], pair[0]))
        own |= {"scores": tuple(f"{label}={score:.3f}" for label, score in ranked)} if ranked else {}
        own |= {"model": (labels.model,)} if labels.model else {}
    standard = _unmapped(existing)
    remembered: list[Added] = []
    for tag in sorted(settings.tags()):
        mappings = [each for each in settings.onto if each.tag == tag]
        wanted = tuple(dict.fromkeys(v for each in mappings for v in labels.groups.get(each.group, ())))
        standard[tag], added = onto(standard.get(tag, ()), wanted, mappings[0].how)
        if added is not None:
            remembered.append(msgspec.structs.replace(added, tag=tag))
    if remembered:
        own["added"] = tuple(msgspec.json.encode(added).decode() for added in remembered)
    if own and (existing.bare or "made" in existing.own):
        own["made"] = ("tag",)
    return _plan(existing, own, standard)


def to_undo(existing: Existing) -> Plan:
    """Returns the changes for removing everything that was written."""
    return _plan(existing, {}, _unmapped(existing))


def _unmapped(existing: Existing) -> dict[str, Values]:
    standard = dict(existing.standard)
    for added in records(existing.own):
        standard[added.tag] = without(standard.get(added.tag, ()), added)
    return standard


def _plan(existing: Existing, own: Mapping[str, Values], standard: Mapping[str, Values]) -> Plan:
    changes = [
        Change(f"tonearm:{name}", existing.own.get(name, ()), own.get(name, ()))
        for name in sorted(existing.own.keys() | own.keys())
    ] + [
        Change(tag, existing.standard.get(tag, ()), standard.get(tag, ()))
        for tag in sorted(existing.standard.keys() | standard.keys())
    ]
    return Plan(own, standard, tuple(change for change in changes if change.before != change.after))
