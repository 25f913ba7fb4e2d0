"""Prints, draws and publishes the results: ratios in front, figures behind them."""

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.environment import Unavailable, python_of
from bench.scene import ROOT

PAGE = ROOT / "docs" / "peers.md"
BEGIN, END = "<!-- results, written by `make bench-peers` -->\n", "<!-- end of the results -->\n"
NO_RUN = (
    "No whole run has been published yet. The figures of [the comparison](comparison.md) come from earlier "
    "measurements, most of them of each\nsystem alone; run `make bench-peers` for your own.\n\n"
)
"""What stands in place of the results until there are some."""
IMAGES = ROOT / "docs" / "images"
PLOT = Path(__file__).with_name("plot.py")
PACKAGES = ("matplotlib==3.10.8",)
COLUMNS = (
    ("jobs/s", "jobs_per_second"),
    ("bulk/s", "bulk_per_second"),
    ("single/s", "one_by_one_per_second"),
    ("start p50", "start_p50_ms"),
    ("p99 ms", "start_p99_ms"),
    ("child s", "child_s"),
    ("tree s", "tree_s"),
    ("lost of 100", "wrongly_failed"),
    ("idle %", "idle_cpu_percent"),
    ("MiB", "memory_mib"),
)
LIMITED = ("child_s", "tree_s")
"""Keys that have no value if the limit of the run was reached."""
RATIOS = tuple((name, key) for name, key in COLUMNS if key not in ("start_p99_ms", "wrongly_failed"))
PICTURES = (
    ("peers-throughput", "Jobs per second"),
    ("peers-latency", "Milliseconds from enqueue to start"),
    ("peers-recovery", "Seconds until the job of a killed process runs again"),
)


def show(results: dict[str, Any]) -> None:
    """Prints the table."""
    systems: list[dict[str, Any]] = results["systems"]
    base = systems[0]
    print(f"\n{results['date']}, {results['machine']}; two worker processes each\n")
    print(f"{'':24} {'× jobs/s':>9} " + " ".join(f"{name:>11}" for name, _ in COLUMNS))
    for system in systems:
        ratio = _ratio(system, base, "jobs_per_second", results["limit_s"]).lstrip("× ")
        cells = " ".join(f"{_cell(system[key], key, results['limit_s']):>11}" for _, key in COLUMNS)
        print(f"{system['name']:24} {ratio:>9} {cells}")
    print(f"\n× jobs/s: beside {base['name']}. child, tree: seconds until a killed job runs again.")
    for system in systems:
        print(
            f"{system['name']} {system['version']}: {system['settings']}"
            + "".join(f"; {note}" for note in system["notes"])
        )


def _ratio(system: dict[str, Any], base: dict[str, Any], key: str, limit: float) -> str:
    """Returns the ratio to the first system; a value that was not reached within the limit is more than that."""
    value, to = system[key], base[key]
    if not to or (value is None and key not in LIMITED):
        return "–"
    return f"> {_short(limit / to)}" if value is None else f"× {_short(value / to)}"


def _cell(value: float | None, key: str, limit: float) -> str:
    if value is None:
        return f"> {limit:g}" if key in LIMITED else "–"
    return _short(value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def publish(results: dict[str, Any]) -> None:
    """Writes the results into the page of the documentation, and draws their plots."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{section(results)}{END}{rest.partition(END)[2]}")
    try:
        python = python_of("plots", PACKAGES)
    except Unavailable as error:
        print(f"no plots: {error}")
        return
    subprocess.run([python, PLOT, str(IMAGES)], input=json.dumps(results), text=True, check=True)


def section(results: dict[str, Any]) -> str:
    """Returns the part of the page that contains the results."""
    systems: list[dict[str, Any]] = results["systems"]
    base, limit = systems[0], results["limit_s"]
    rounds = "one round" if results["rounds"] == 1 else f"medians of {results['rounds']} rounds"
    said = f"Measured on {results['date']}, {rounds}, on {results['machine']}."
    parts = [f"{said} `bench/peers/latest.json` has every figure."]
    for name, title in PICTURES:
        for mode in ("light", "dark"):
            parts.append(f"![{title}](images/{name}-{mode}.png#only-{mode})")
    parts.append(f"Ratios to {base['name']}:")
    names = [name for name, _ in RATIOS]
    parts.append(
        _rows(names, [[each["name"], *(_ratio(each, base, key, limit) for _, key in RATIOS)] for each in systems])
    )
    parts.append("Figures:")
    names = [name for name, _ in COLUMNS]
    parts.append(
        _rows(names, [[each["name"], *(_cell(each[key], key, limit) for _, key in COLUMNS)] for each in systems])
    )
    parts.append("Versions and what happened:")
    parts.append("\n".join(_said(each) for each in systems))
    return "\n\n".join(["", *parts, ""])


def _rows(names: list[str], rows: list[list[str]]) -> str:
    lines = [["", *names], ["---"] * (len(names) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _said(system: dict[str, Any]) -> str:
    notes = "".join(f"; {note}" for note in system["notes"])
    return f"- **{system['name']}** {system['version']}: {system['settings']}{notes}"
