"""Writing labels into files: safely, only what is asked for, and never touching what already says so."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from tonearm.tags import formats, place
from tonearm.tags.kinds import Kind, kind_of
from tonearm.tags.malformed import Malformed
from tonearm.tags.outcome import Outcome, Refusal, Refused, Unchanged, Written, from_error
from tonearm.tags.plan import Existing, Plan, to_write
from tonearm.tags.settings import Labels, Settings

Planner = Callable[[Existing], Plan]
T = TypeVar("T")


def write(path: str | Path, labels: Labels, settings: Settings, *, root: str | Path) -> Outcome:
    """Write the labels into the file as the settings say; refused and unchanged files are left exactly as they are."""
    return rewrite(path, lambda existing: to_write(existing, labels, settings), settings, root=root)


def preview(path: str | Path, labels: Labels, settings: Settings, *, root: str | Path) -> Plan | Refused:
    """What `write` would change or why it would refuse; nothing is written."""
    return _guarded(lambda: _preview(str(path), labels, settings, str(root)))


def rewrite(path: str | Path, planner: Planner, settings: Settings, *, root: str | Path) -> Outcome:
    """Make the file say what is planned for it."""
    return _guarded(lambda: _rewrite(str(path), planner, settings, str(root)))


def _preview(path: str, labels: Labels, settings: Settings, root: str) -> Plan:
    with place.opened_inside(root, path) as found:
        plan = to_write(formats.look(found.file, kind_of(found.file), settings.tags()), labels, settings)
        if plan.changes:
            place.may_replace(found, hard_links=settings.hard_links)
        return plan


def _rewrite(path: str, planner: Planner, settings: Settings, root: str) -> Outcome:
    with place.opened_inside(root, path) as found:
        kind = kind_of(found.file)
        existing = formats.look(found.file, kind, settings.tags())
        plan = planner(existing)
        if not plan.changes:
            return Unchanged()
        place.may_replace(found, hard_links=settings.hard_links)
        before = formats.rest(found.file, kind, plan.standard)

        def fill(out: BinaryIO) -> None:
            formats.compose(found.file, out, kind, existing, plan)

        place.replace(found, fill, lambda new: check(new, kind, before, plan), keep_mtime=settings.keep_mtime)
        now = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
        return Written(plan, now.st_size, now.st_mtime_ns, now.st_ino)


def check(new: BinaryIO, kind: Kind, before: formats.Rest, plan: Plan) -> None:
    """Refusal unless the new file says what is planned and is the old one in all else."""
    if kind_of(new) != kind:
        raise Refusal("not-kept", f"what was a {kind} file would no longer be one")
    if difference := before.difference(formats.rest(new, kind, plan.standard)):
        raise Refusal("not-kept", f"{difference} would not be kept")
    said = formats.look(new, kind, plan.standard)
    if dict(said.own) != dict(plan.own):
        raise Refusal("not-kept", "the labels would not be read as they were written")
    for tag, values in plan.standard.items():
        if said.standard.get(tag, ()) != values:
            raise Refusal("not-kept", f"{tag} would be read as {said.standard.get(tag, ())}, not {values}")


def _guarded(work: Callable[[], T]) -> T | Refused:
    """The result, or the reason why there is none; whatever a hostile file makes the readers raise is one too."""
    try:
        return work()
    except Refusal as refusal:
        return refusal.refused
    except OSError as error:
        return from_error(error)
    except Malformed as error:
        return Refused("unreadable", str(error))
    except Exception as error:  # mutagen raises many kinds of errors on damaged files
        return Refused("unreadable", f"{type(error).__name__}: {error}")
