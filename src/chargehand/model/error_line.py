"""What an error or a crash comes down to: one line with a code, and the frames that are the application's own. Pure.

Errors are texts: the tracebacks that Python writes, the stacks of faulthandler, or sentences. Only their form is read,
never their words.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from chargehand.errors import STACKS_FOLLOW
from chargehand.model.doctor.wording import place_in

LIMIT = 300
"""Characters of a line."""
MOST_FRAMES = 12
"""Frames of the application that are returned: the innermost ones."""

_GUTTER = re.compile(r"^(?:  )*(?:[+|] ?|  \+[-+ ]*)+")
"""What Python draws beside the members of an exception group."""
_HEADER = re.compile(r"^(?:Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, | )?(?:in (?P<function>.*))?$')
_EXCEPTION = re.compile(r"^(?P<code>[A-Za-z_][\w.<>]*)(?::|$)")
_GROUP = re.compile(r" \(\d+ sub-exceptions?\)$")
_FOREIGN = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<")
_PACKAGE = __file__.rpartition("/model/")[0] + "/"


class ErrorLine(msgspec.Struct, frozen=True):
    """An error in one line."""

    line: str
    code: str | None = None
    """The name of the exception's class, such as `FileNotFoundError`, or of the signal; None for a sentence."""


def error_line(error: str | None) -> ErrorLine | None:
    """Returns the exception's own line of a traceback, with its first note left out; of other texts the first line.

    Of chained exceptions it is the last, which the handler raised; of a group also its first member.
    """
    text, follows, stacks = (error or "").partition(STACKS_FOLLOW)
    lines = text.splitlines()
    at = _last_exception(lines)
    if at is None:
        line = next((line.strip() for line in lines if line.strip()), "")
        where = place_in(stacks) if follows else ""
        return ErrorLine(_cut(f"{line} in {where}" if where else line)) if line else None
    own = _bare(lines[at]).rstrip()
    found = _EXCEPTION.match(own)
    code = found["code"].rpartition(".")[2] if found else None
    if _GROUP.search(own):
        member = _first_member(lines, at)
        own = f"{own}, first {member}" if member else own
    elif own.endswith(":"):  # the message begins with a new line
        own = f"{own} {next((_bare(line).strip() for line in lines[at + 1 :] if _bare(line).strip()), '')}".rstrip()
    return ErrorLine(_cut(own), code)


def with_cause(record: Any) -> None:
    """Sets `cause` and `cause_code` of a struct from its `error`, unless its sender has."""
    if record.error and record.cause is None:
        found = error_line(record.error)
        msgspec.structs.force_setattr(record, "cause", found and found.line)
        msgspec.structs.force_setattr(record, "cause_code", found and found.code)


def own_frames(text: str | None) -> tuple[str, ...]:
    """Returns the frames of the application in a traceback or in stacks, each with its source line: not those of
    Python, of installed packages and of Chargehand. The innermost is last in a traceback, and first in stacks."""
    lines = [_bare(line) for line in (text or "").splitlines()]
    found: list[str] = []
    for at, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is None or _FOREIGN.search(frame["file"]) or frame["file"].startswith(_PACKAGE):
            continue
        source = lines[at + 1].strip() if at + 1 < len(lines) and lines[at + 1].startswith("    ") else ""
        where = f"{frame['file']}:{frame['line']}" + (f" in {frame['function']}" if frame["function"] else "")
        found.append(f"{where}\n    {source}" if source else where)
    return tuple(found[-MOST_FRAMES:])


def _bare(line: str) -> str:
    """Returns a line of a traceback without the marks of an exception group."""
    found = _GUTTER.match(line)
    if found is None or not set("|+") & set(found[0]):
        return line
    return line[found.end() :]


def _headers(lines: Sequence[str]) -> Iterator[int]:
    return (at for at, line in enumerate(lines) if _HEADER.match(_bare(line)))


def _ends(lines: Sequence[str], header: int) -> int | None:
    """Returns the line of the exception of the traceback that begins there: the first after it that is not indented."""
    for at in range(header + 1, len(lines)):
        line = _bare(lines[at])
        if line and not line.startswith(" "):
            return at
    return None


def _last_exception(lines: Sequence[str]) -> int | None:
    """Returns the line of the exception that was raised last, outside of the members of a group."""
    outer = [at for at in _headers(lines) if not lines[at].startswith("    ")]
    found = [_ends(lines, at) for at in (outer or list(_headers(lines)))[-1:]]
    if found and found[0] is not None:
        return found[0]
    # The beginning was cut off, or a syntax error has no stack: the line after the last frame.
    frames = [at for at, line in enumerate(lines) if _FRAME.match(_bare(line))]
    return _ends(lines, frames[-1]) if frames else None


def _first_member(lines: Sequence[str], group: int) -> str:
    """Returns the exception of the first member of a group that is no group itself."""
    members = (_bare(line).rstrip() for line in lines[group + 1 :])
    return next((line for line in members if _EXCEPTION.match(line) and not _GROUP.search(line)), "")


def _cut(line: str) -> str:
    return line if len(line) <= LIMIT else f"{line[: LIMIT - 1]}…"
