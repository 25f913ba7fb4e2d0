# pyright: basic, reportMissingImports=false
"""Draws results from standard input into a folder: `plot.py FOLDER`. Run in an environment with matplotlib."""

import json
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

mpl.use("agg")
OURS, OTHERS = "#c2410c", "#64748b"
PLOTS = (
    ("peers-throughput", "jobs_per_second", "Jobs per second that do nothing, two worker processes", False),
    ("peers-latency", "start_p50_ms", "Milliseconds from enqueue to start, median (logarithmic)", True),
    ("peers-recovery", "child_s", "Seconds until a job whose process was killed runs again (logarithmic)", True),
)


def main() -> None:
    """Draws all plots."""
    results = json.load(sys.stdin)
    for name, key, title, logarithmic in PLOTS:
        draw(results, Path(sys.argv[1]) / f"{name}.png", key, title, logarithmic)


def draw(results: dict, path: Path, key: str, title: str, logarithmic: bool) -> None:
    """Draws one bar for each system; a hatched bar is longer than the limit of the measurement."""
    systems = results["systems"][::-1]
    limit = results["limit_s"]
    never = [system[key] is None for system in systems]
    values = [limit if none else system[key] for system, none in zip(systems, never, strict=True)]
    figure, axes = pyplot.subplots(figsize=(8, 0.42 * len(systems) + 1), dpi=110)
    colours = [OURS if system["name"].startswith("Chargehand") else OTHERS for system in systems]
    bars = axes.barh([system["name"] for system in systems], values, color=colours, height=0.7)
    for bar, value, none in zip(bars, values, never, strict=True):
        if none:
            bar.set_hatch("///")
        text = f"not within {limit:g} s" if none else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        axes.annotate(
            text, (value, bar.get_y() + bar.get_height() / 2), xytext=(4, 0), textcoords="offset points", va="center"
        )
    if logarithmic:
        axes.set_xscale("log")
    axes.margins(x=0.18)
    axes.set_title(title, loc="left", fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.text(0.99, 0.01, f"{results['date']}, {results['machine']}", ha="right", fontsize=7, color="#666")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
