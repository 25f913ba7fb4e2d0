"""Writes labels into files safely: only what was requested, and never a file that is already up to date."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from tonearm.tags import formats, place
from tonearm.tags.kinds import Kind, kind_of
from tonearm.tags.malformed import Malformed
from tonearm.tags.outcome import Outcome, Refusal, Refused, Unchanged, Written, from_error
from tonearm.tags.plan import Existing, Plan, to_write
from tonearm.tags.settings import Labels, Settings

Planner = Callable[[Existing], Plan]


class Apply(Protocol):
    """Replaces a file with what `fill` writes and `check` accepts, or rehearses that."""

    def __call__(
        self,
        place: place.Place,
        fill: Callable[[BinaryIO], None],
        check: Callable[[BinaryIO], None],
        *,
        keep_mtime: bool,
    ) -> None: ...


T = TypeVar("T")


def write(path: str | Path, labels: Labels, settings: Settings, *, root: str | Path) -> Outcome:
    """Writes the labels into the file according to the settings; leaves refused and unchanged files as they are."""
    return rewrite(path, lambda existing: to_write(existing, labels, settings), settings, root=root)


def preview(path: str | Path, labels: Labels, settings: Settings, *, root: str | Path) -> Plan | Refused:
    """Returns what `write` would change, or why it would refuse: does everything except replacing the file."""

    def planner(existing: Existing) -> Plan:
        return to_write(existing, labels, settings)

    return _guarded(lambda: _rewrite(str(path), planner, settings, str(root), place.rehearse)[0])


def rewrite(path: str | Path, planner: Planner, settings: Settings, *, root: str | Path) -> Outcome:
    """Applies a plan to the file."""
    return _guarded(lambda: _rewrite(str(path), planner, settings, str(root), place.replace)[1])


def _rewrite(path: str, planner: Planner, settings: Settings, root: str, apply: Apply) -> tuple[Plan, Outcome]:
    with place.opened_inside(root, path) as found:
        kind = kind_of(found.file)
        existing = formats.look(found.file, kind, settings.tags())
        plan = planner(existing)
        if not plan.changes:
            return plan, Unchanged()
        place.may_replace(found, hard_links=settings.hard_links)
        before = formats.rest(found.file, kind, plan.standard)

        def fill(out: BinaryIO) -> None:
            formats.compose(found.file, out, kind, existing, plan)

        apply(found, fill, lambda new: check(new, kind, before, plan), keep_mtime=settings.keep_mtime)
        now = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
        return plan, Written(plan, now.st_size, now.st_mtime_ns, now.st_ino)


def check(new: BinaryIO, kind: Kind, before: formats.Rest, plan: Plan) -> None:
    """Raises Refusal unless the new file has the planned tags and is otherwise identical to the old one."""
    if kind_of(new) != kind:
        raise Refusal("not-kept", f"the result would no longer be a {kind} file")
    if difference := before.difference(formats.rest(new, kind, plan.standard)):
        raise Refusal("not-kept", f"{difference} would not be preserved")
    said = formats.look(new, kind, plan.standard)
    if dict(said.own) != dict(plan.own):
        raise Refusal("not-kept", "the labels could not be read back as written")
    for tag, values in plan.standard.items():
        if said.standard.get(tag, ()) != values:
            raise Refusal("not-kept", f"{tag} would be read back as {said.standard.get(tag, ())}, not {values}")


def _guarded(work: Callable[[], T]) -> T | Refused:
    """Returns the result or the refusal; any exception of a reader on a hostile file is a refusal too."""
    try:
        return work()
    except Refusal as refusal:
        return refusal.refused
    except OSError as error:
        return from_error(error)
    except Malformed as error:
        return Refused("unreadable", str(error))
    except Exception as error:  # mutagen raises many exception types on damaged files
        return Refused("unreadable", f"{type(error).__name__}: {error}")
