"""Fits a table into the width of a terminal. Texts and ids are shortened first; what an operator looks for stays.

Pure: it prints nothing.
"""

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len, set_cell_size

GAP = 2
"""Blanks between two columns."""
SENTENCE = 30
"""The width from which the last column, which has sentences, stands beside the others; else it follows below them."""
MOST_LINES = 4
"""Lines of a sentence."""
SHORT_ID = 9
"""The width of a shortened id: its last 8 characters, which commands accept instead of it."""
SHORT_TEXT = 16
IDS = frozenset({"ID", "JOB", "FAILED JOB", "RUNNING JOB", "LAST JOB", "FLOW"})
TEXTS = frozenset({"WHAT FOLLOWED", "LABEL", "PROGRESS", "HANDLER", "SCHEDULE", "CREWS", "KEY", "GPU", "MACHINE"})
LEAST_WANTED = (
    "LEFT",
    "CANCEL ASKED",
    "VERSION",
    "GPU",
    "MACHINE",
    "MEMORY",
    "WHAT FOLLOWED",
    "JOBS",
    "RAISED",
    "CRASHES",
    "PROGRESS",
    "PID",
    "FOR",
    "NODE",
)
"""The columns that are left out, in this order, if shortening is not enough."""
WHOLE = frozenset({"STATUS", "STATE", "WHEN", "SINCE", "CREATED", "STARTED", "LAST", "WORKER", "CLAIM"}) | IDS
"""The columns that are never shortened to fit."""
LEAST_WIDTH = 8
"""The width below which no column is shortened to fit."""
LEAST_WORKER = 16
"""The width below which no worker is shortened; its end, which has its number, stays."""
NUMBER = 10
"""The width up to which a last column has numbers or words instead of sentences: it stays in its row."""


class Fitted(msgspec.Struct, frozen=True):
    """A table that fits: its columns, and the lines of each row as cells of these widths, or as text below them."""

    columns: tuple[str, ...]
    widths: tuple[int, ...]
    rows: tuple["FittedRow", ...]


class FittedRow(msgspec.Struct, frozen=True):
    """One row: the cells of its lines, and the lines of the sentence that stands below them."""

    lines: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()


def fit(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, most_lines: int = MOST_LINES
) -> Fitted:
    """Returns the table for a terminal of this width (None: any width), with so many lines of a sentence at most."""
    kept = list(range(len(columns)))
    natural = [max([cell_len(name), *(cell_len(row[at]) for row in rows)]) for at, name in enumerate(columns)]
    if width is None or _total(natural) <= width:
        return _table(columns, rows, kept, natural, most_lines)
    last = len(columns) - 1
    shortened = list(natural)
    for at, name in enumerate(columns[:-1]):
        least = SHORT_ID if name in IDS else SHORT_TEXT if name in TEXTS else natural[at]
        shortened[at] = max(cell_len(name), min(natural[at], least))
    for widths in (natural, shortened):
        room = width - _total([widths[at] for at in kept[:-1]]) - GAP
        if room >= min(SENTENCE, natural[last]):
            return _table(columns, rows, kept, [*widths[:-1], min(room, natural[last])], most_lines)
    below = natural[last] > NUMBER

    def beside() -> list[int]:
        return kept[:-1] if below else kept

    for name in LEAST_WANTED:
        if _total([shortened[at] for at in beside()]) <= width:
            break
        kept = [at for at in kept if columns[at] != name or at == last]
    _narrow(columns, beside(), shortened, width)
    return _table(columns, rows, beside(), shortened, most_lines, below=(last, width) if below else None)


def _narrow(columns: Sequence[str], kept: Sequence[int], widths: list[int], width: int) -> None:
    """Takes what is missing from the widest columns, as far as they may be shortened."""
    may = [at for at in kept if columns[at] not in WHOLE and widths[at] > max(LEAST_WIDTH, cell_len(columns[at]))]
    while may and _total([widths[at] for at in kept]) > width:
        widest = max(may, key=lambda at: widths[at])
        widths[widest] -= 1
        if widths[widest] <= max(LEAST_WIDTH, cell_len(columns[widest])):
            may.remove(widest)
    for at in kept:
        if columns[at] == "WORKER":  # so that a very long name does not push the status out of the terminal
            missing = _total([widths[each] for each in kept]) - width
            widths[at] -= max(0, min(missing, widths[at] - LEAST_WORKER))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    kept: Sequence[int],
    widths: Sequence[int],
    most_lines: int,
    *,
    below: tuple[int, int] | None = None,
) -> Fitted:
    """Returns the table with these columns; `below`: the column that follows below each row, and its width."""
    made: list[FittedRow] = []
    for row in rows:
        cells = [_lines(row[at], widths[at], columns[at], most_lines if at == len(columns) - 1 else 1) for at in kept]
        height = max(map(len, cells), default=1)
        lines = tuple(tuple(cell[line] if line < len(cell) else "" for cell in cells) for line in range(height))
        under: tuple[str, ...] = ()
        if below is not None and row[below[0]] not in ("", "–"):
            under = tuple(wrapped(row[below[0]], below[1] - 2, most_lines))
        made.append(FittedRow(lines, under))
    names = tuple(columns[at] for at in kept)
    return Fitted(names, tuple(widths[at] for at in kept), tuple(made))


def _lines(text: str, width: int, column: str, most: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    if column in IDS:
        return [f"…{text[1 - width :]}"]
    if column == "WORKER":
        return [_without_middle(text, width)]
    return wrapped(text, width, most)


def _without_middle(text: str, width: int) -> str:
    """Returns the name of a worker without its middle: the beginning names its crew, the end is its number."""
    end = text[-6:]
    return f"{set_cell_size(text, width - 1 - cell_len(end)).rstrip()}…{end}"


def wrapped(text: str, width: int, most: int = MOST_LINES) -> list[str]:
    """Returns the text in lines of whole words; a word that is too long for a line is broken."""
    lines = [""]
    for word in text.split():
        rest = word
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(rest) <= width:
            lines[-1] += f" {rest}"
            continue
        if lines[-1]:
            lines.append("")
        while cell_len(rest) > width:
            head = set_cell_size(rest, width).rstrip()
            lines[-1], rest = head, rest[len(head) :]
            lines.append("")
        lines[-1] = rest
    if len(lines) > most:
        lines = [*lines[: most - 1], shorten(" ".join(lines[most - 1 :]), width)]
    return lines


def shorten(text: str, width: int) -> str:
    """Returns the text, or its beginning with an ellipsis."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"
