"""Prints and draws the results: ratios in front, figures behind them."""

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.environment import Unavailable, python_of
from bench.scene import ROOT

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


def show(results: dict[str, Any]) -> None:
    """Prints the table."""
    systems: list[dict[str, Any]] = results["systems"]
    base = systems[0]
    print(f"\n{results['date']}, {results['machine']}; two worker processes each\n")
    print(f"{'':24} {'× jobs/s':>9} " + " ".join(f"{name:>11}" for name, _ in COLUMNS))
    for system in systems:
        ratio = _ratio(system["jobs_per_second"], base["jobs_per_second"])
        cells = " ".join(f"{_cell(system[key], key, results['limit_s']):>11}" for _, key in COLUMNS)
        print(f"{system['name']:24} {ratio:>9} {cells}")
    print(f"\n× jobs/s: beside {base['name']}. child, tree: seconds until a killed job runs again.")
    for system in systems:
        print(
            f"{system['name']} {system['version']}: {system['settings']}"
            + "".join(f"; {note}" for note in system["notes"])
        )


def _ratio(value: float | None, base: float | None) -> str:
    return "–" if value is None or not base else f"{value / base:.3g}"


def _cell(value: float | None, key: str, limit: float) -> str:
    if value is None:
        return f"> {limit:g}" if key in ("child_s", "tree_s") else "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw(results: dict[str, Any]) -> None:
    """Draws the plots, in an environment with a library for it."""
    try:
        python = python_of("plots", PACKAGES)
    except Unavailable as error:
        print(f"no plots: {error}")
        return
    subprocess.run([python, PLOT, str(IMAGES)], input=json.dumps(results), text=True, check=True)
