"""Output of commands. Control characters are escaped, so that the label of a job cannot control the terminal."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from traceback import format_exc
from typing import Any

import msgspec
from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from chargehand import clock, codec
from chargehand.cli.fit import GAP, fit, wrapped


def json(value: Any) -> None:
    """Prints JSON."""
    sys.stdout.write(encodable(msgspec.json.format(msgspec.json.encode(value), indent=2)) + "\n")


def json_line(value: Any) -> None:
    """Prints one line of JSON and flushes."""
    line(encodable(msgspec.json.encode(value)))


def encodable(document: bytes) -> str:
    """Returns JSON that standard output can encode and a terminal only shows: other characters become \\u escapes."""
    text = document.decode()
    every = _is_encodable(text)
    if every and text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or (c.isprintable() and (every or c.isascii())) else _json_escape(c) for c in text)


def _is_encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _json_escape(character: str) -> str:
    return f"\\u{ord(character):04x}" if character.isascii() else encode_basestring_ascii(character)[1:-1]


def safe(value: Any) -> str:
    """Returns the value as text, with control characters escaped."""
    if value is None:
        return "–"
    text = codec.readable(str(value))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def trace() -> str:
    """Returns the traceback of the current exception, with control characters of its text escaped."""
    return "\n".join(map(safe, format_exc().split("\n")))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table that fits into the terminal; if standard output is not one, of any width."""
    cells = [[safe(cell) for cell in row] for row in rows]
    console = Console(file=sys.stdout, highlight=False)
    fitted = fit(columns, cells, console.width if sys.stdout.isatty() else None)
    console.width = 10_000  # it must not wrap what fits
    console.print(Text(joined(fitted.columns, fitted.widths), "bold"))
    for row in fitted.rows:
        for line in row.lines:
            console.print(Text(joined(line, fitted.widths)))
        for text in row.below:
            console.print(Text(f"  {text}"))


def joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Returns the cells of a row as one line."""
    padded = (set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True))
    return (" " * GAP).join(padded).rstrip()


def gpus(assigned: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the GPUs of a worker with memory in use and utilization, such as `0: 61/80 GiB 97 %`."""

    def one(gpu: Mapping[str, Any]) -> str:
        used, total, busy = gpu["memory_used"], gpu["memory"], gpu["utilization"]
        memory = "" if total is None or used is None else f" {used / 2**30:.0f}/{total / 2**30:.0f} GiB"
        name = gpu["uuid"] if gpu["index"] is None else gpu["index"]
        return f"{name}:{memory}" + ("" if busy is None else f" {busy} %")

    return ", ".join(one(gpu) for gpu in assigned) or None


def paragraph(label: str, text: str, *, indent: int) -> None:
    """Prints a labelled text: on a terminal wrapped between words and indented, otherwise as one line."""
    lines = [text]
    if sys.stdout.isatty():
        lines = wrapped(text, max(40, Console().width) - indent, most=sys.maxsize)
    for at, each in enumerate(lines):
        line(f"{label if at == 0 else '':{indent}}{each}")


def line(text: str) -> None:
    """Prints one line, or several, with control characters escaped, and flushes."""
    sys.stdout.write("\n".join(map(safe, text.split("\n"))) + "\n")
    sys.stdout.flush()


def staff(crews: Iterable[tuple[str, int, int]]) -> str:
    """Returns the live and the configured workers of a node by crew, without the crews that it does not run."""
    return ", ".join(f"{crew} {live}/{configured}" for crew, live, configured in crews if live or configured)


def ago(ms: int | None) -> str:
    """Returns how long ago a time was, as text."""
    if ms is None:
        return "–"
    seconds = (clock.now_ms() - ms) / 1000
    if seconds < 0:
        return f"in {span(-seconds)}"
    return f"{span(seconds)} ago"


def moment(ms: int) -> str:
    """Returns a time and how long ago it was."""
    return f"{clock.local_time(ms)} ({ago(ms)})"


def span(seconds: float) -> str:
    """Returns a length of time as text."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def rate_wait(next_ms: int) -> str:
    """Returns that a queue is limited by its rate, and when the next job may start."""
    return f"limited by rate, next in {span(max(0, next_ms - clock.now_ms()) / 1000)}"


def in_hand(worker: Mapping[str, Any]) -> str | None:
    """Returns what a worker has in hand: its job, or the number of its jobs (`12 of 100`)."""
    most = worker.get("concurrency", 1)
    return worker["current_job"] if most == 1 else f"{worker.get('in_hand', 0)} of {most}"


def progress(report: dict[str, Any]) -> str | None:
    """Returns the progress of a job as text."""
    done, total, stage, detail = (report.get(name) for name in ("done", "total", "stage", "detail"))
    share = f"{done:g}/{total:g}" if done is not None and total else None if done is None else f"{done:g}"
    return " ".join(str(part) for part in (share, stage, detail) if part) or None
