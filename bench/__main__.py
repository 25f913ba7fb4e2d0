"""Measure, print a table, and store the results: `python -m bench [--store postgres] [--list] [WORD ...]`."""

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path

from chaos import servers

from bench.row import Measure, Row, register

THEMES = {
    "sqlite": (
        "throughput",
        "flows",
        "waiting",
        "enqueueing",
        "latency",
        "death",
        "sickness",
        "claiming",
        "pruning",
        "resting",
        "stopping",
        "watching",
        "songs",
        "films",
    ),
    "postgres": (
        "postgres.throughput",
        "postgres.flows",
        "postgres.enqueueing",
        "postgres.latency",
        "postgres.resting",
        "postgres.limits",
        "postgres.pinning",
        "postgres.claiming",
    ),
}
"""Modules with measurements by store, in the order of execution."""
LATEST = {"sqlite": "latest.json", "postgres": "postgres.json"}
"""Where the results are stored: files of this package."""
BUSY = 0.5
"""Load per core above which the results are not stored, because other processes disturb them."""


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _line(name: str, *cells: str) -> str:
    width = max(len(name) for names in register.values() for name in names)
    return f"{name:{width}}  {cells[0]:>10} {cells[1]:12} {cells[2]:>10} {cells[3]:>8} {cells[4]:>10}  {cells[5]}"


def _row_line(row: Row) -> str:
    if row.value is None:
        return _line(row.name, "–", row.unit, "–", "–", "", f"NOT MEASURED: {row.note}")
    goal = "–" if row.goal is None else f"{'≥' if row.more_is_better else '≤'} {_shown(row.goal)}"
    meets = {True: "yes", False: "NO", None: ""}[row.meets]
    return _line(row.name, _shown(row.value), row.unit, _shown(row.limit), _shown(row.ratio), goal, meets)


def _measure(measure: Measure, wanted: Sequence[str]) -> list[Row] | None:
    """Runs a measurement and prints the wanted rows; returns None if it failed."""
    try:
        rows = list(measure())
    except Exception:
        print(f"measurement failed: {', '.join(register[measure])}", flush=True)
        traceback.print_exc()
        return None
    assert tuple(row.name for row in rows) == register[measure]
    rows = [row for row in rows if row.name in wanted]
    for row in rows:
        print(_row_line(row), flush=True)
    return rows


def _is_busy() -> bool:
    """Returns whether other processes use the machine, and prints a warning; called before the measurements."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= BUSY * cores:
        return False
    print(
        f"other processes use this machine (load {load:.1f} on {cores} cores): rely on ratios, not on times\n",
        flush=True,
    )
    return True


def _keep(store: str, rows: Sequence[Row], why_not: str) -> None:
    latest = Path(__file__).with_name(LATEST[store])
    if why_not:
        print(f"; {latest.name} was not changed: {why_not}")
        return
    latest.write_text(json.dumps([row.as_json() for row in rows], indent=2, ensure_ascii=False) + "\n")
    print(f"; written to {latest}")


def _server(store: str) -> AbstractContextManager[object]:
    """Returns the server that the measurements need, not yet started."""
    if store == "sqlite":
        return nullcontext()
    if (packages := servers.missing()) is not None:
        sys.exit(f"the store {store} needs more packages: pip install {packages}")
    from bench.postgres.server import serving

    return serving()


def main() -> int:
    """Runs the benchmark. The exit status tells whether all measurements succeeded, not whether goals are met."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--store", choices=THEMES, default="sqlite", help="the store that is measured")
    parser.add_argument("--list", action="store_true", help="only list the rows")
    parser.add_argument("--keep", action="store_true", help="store the results even if other processes use the machine")
    parser.add_argument("words", nargs="*", help="only rows whose name contains one of these")
    options = parser.parse_args()
    words: list[str] = options.words
    server = _server(options.store)
    for theme in THEMES[options.store]:
        import_module(f"bench.{theme}")
    wanted = [
        n for names in register.values() for n in names if not words or any(w.lower() in n.lower() for w in words)
    ]
    if options.list:
        print("\n".join(wanted))
        return 0
    if not wanted:
        parser.error("no row has this name; use --list")
    # As in an installation: no other store, and compiled modules are kept.
    for name in ("CHARGEHAND_URL", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that all resources are cleaned up
    busy = _is_busy() and not options.keep
    with server:
        print(_line("", "value", "", "limit", "÷ limit", "goal", "meets"), flush=True)
        measured = [_measure(m, wanted) for m, names in register.items() if set(names) & set(wanted)]
    rows = [row for some in measured if some is not None for row in some]
    for row in rows:
        if not row.meets and row.note and row.value is not None:
            print(f"\n{row.name}: {row.note}")
    with_goal = [row for row in rows if row.goal is not None]
    print(f"\n{sum(row.meets is True for row in with_goal)} of {len(with_goal)} meet their goal", end="")
    others = "other processes use the machine (--keep stores the results anyway)" if busy else ""
    incomplete = None in measured or any(row.value is None for row in rows) or bool(words)
    _keep(options.store, rows, "some rows were not measured" if incomplete else others)
    return 1 if None in measured else 0


if __name__ == "__main__":
    sys.exit(main())
