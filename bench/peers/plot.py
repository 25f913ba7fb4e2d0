# pyright: basic, reportMissingImports=false
"""Draws results from standard input into a folder: `plot.py FOLDER`. Run in an environment with matplotlib.

Each plot is drawn twice, for the light and for the dark mode of the site.
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

mpl.use("agg")
MODES = {  # background, text, others, Chargehand
    "light": ("#ffffff", "#1f2937", "#94a3b8", "#c2410c"),
    "dark": ("#1e2129", "#d5d7e0", "#64748b", "#f97316"),
}
PLOTS = (
    ("peers-throughput", "jobs_per_second", "Jobs per second that do nothing, two worker processes", False),
    ("peers-latency", "start_p50_ms", "Milliseconds from enqueue to start, median (logarithmic)", True),
    ("peers-recovery", "child_s", "Seconds until a job whose process was killed runs again (logarithmic)", True),
)


def main() -> None:
    """Draws all plots."""
    results = json.load(sys.stdin)
    for name, key, title, logarithmic in PLOTS:
        for mode in MODES:
            draw(results, Path(sys.argv[1]) / f"{name}-{mode}.png", key, title, logarithmic, mode)


def draw(results: dict, path: Path, key: str, title: str, logarithmic: bool, mode: str) -> None:
    """Draws one bar for each system; a hatched bar is longer than the limit of the measurement."""
    ground, text, others, ours = MODES[mode]
    # Without a limit of time, a missing value was not measured and has no bar.
    limit = results["limit_s"] if key == "child_s" else None
    systems = [each for each in results["systems"][::-1] if each[key] is not None or limit is not None]
    never = [system[key] is None for system in systems]
    values: list[float] = [(limit or 0.0) if none else each[key] for each, none in zip(systems, never, strict=True)]
    style = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), text)
    style |= dict.fromkeys(("axes.facecolor", "figure.facecolor", "hatch.color"), ground)
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(8, 0.42 * len(systems) + 1), dpi=110)
        colours = [ours if system["name"].startswith("Chargehand") else others for system in systems]
        bars = axes.barh([system["name"] for system in systems], values, color=colours, height=0.7)
        for bar, value, none in zip(bars, values, never, strict=True):
            if none:
                bar.set_hatch("///")
            label = f"not within {value:g} s" if none else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            axes.annotate(
                label, (value, bar.get_y() + bar.get_height() / 2), xytext=(4, 0), textcoords="offset points",
                va="center",
            )  # fmt: skip
        if logarithmic:
            axes.set_xscale("log")
        axes.margins(x=0.18)
        axes.set_title(title, loc="left", fontsize=11)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.text(0.99, 0.01, f"{results['date']}, {results['machine']}", ha="right", fontsize=7, alpha=0.7)
        figure.tight_layout()
        figure.savefig(path)
        pyplot.close(figure)


if __name__ == "__main__":
    main()
