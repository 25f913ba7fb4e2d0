"""`STORE=postgres python -m chaos`: the chaos test on PostgreSQL, with two nodes.

Environment variables: JOBS, SEED, MINUTES, KEEP, and ONLY with the names of scenes, separated by commas.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.judge import Verdict
from chaos.killer import Numbers
from chaos.longer import LONGER
from chaos.output import folder, violations
from chaos.scene import Scene
from chaos.scenes import NINE, InFlows, Kills
from chaos.servers import MEMORY, Site
from chargehand import clock

MINUTES = 3.0
JOBS, WORKERS, NODES, ENQUEUERS = 10_000, 510, 21, 6
"""Numbers of the scene `kills` for its default duration; they scale with the duration."""
KILLING = 0.85
"""The share of that time with kills."""
VIOLATIONS = ("lost", "twice", "expired", "unexpected", "orphans")


def _numbers(number: Callable[[str, float], float]) -> Numbers:
    minutes = number("MINUTES", MINUTES)
    share = minutes / MINUTES
    return Numbers(
        jobs=max(1, round(number("JOBS", JOBS * share))),
        seconds=60 * minutes * KILLING,
        workers=round(WORKERS * share),
        nodes=round(NODES * share),
        enqueuers=round(ENQUEUERS * share),
    )


SCENES: dict[str, type[Scene]] = NINE | LONGER
CAMPAIGNS: dict[str, type[Kills | InFlows]] = {"kills": Kills, "flows": InFlows}
USUAL = (*CAMPAIGNS, *NINE, "outage")
"""What runs by default, within 8 minutes."""


def _chosen() -> list[str]:
    known = [*CAMPAIGNS, *SCENES]
    names = [name.strip() for name in os.environ.get("ONLY", "").split(",") if name.strip()] or list(USUAL)
    if names == ["all"]:
        return known
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"ONLY={','.join(unknown)} is unknown; the scenes are all, {', '.join(known)}")
    return names


def _report(verdict: Verdict, times: dict[str, float], counts: dict[str, int]) -> dict[str, Any]:
    figures = {
        "acknowledged": verdict.acknowledged, "executed": verdict.executed, "completed": verdict.completed,
        "unsure": verdict.unsure, "late outcomes refused": verdict.late, "overlapping executions": verdict.overlaps,
        **counts, **{name: len(getattr(verdict, name)) for name in VIOLATIONS},
    }  # fmt: skip
    print("  " + ", ".join(f"{name}: {value:,}" for name, value in figures.items()))
    for what, seconds in times.items():
        print(f"  {what}: {seconds:.2f} s")
    for kind in VIOLATIONS:
        violations(kind, getattr(verdict, kind))
    return {**figures, "seconds": {what: round(took, 2) for what, took in times.items()}}


def main(number: Callable[[str, float], float]) -> int:
    """Runs the scenes; returns 0 if none of them finds a violation. `number` reads an environment variable."""
    seed, names = int(number("SEED", int.from_bytes(os.urandom(3), "big"))), _chosen()
    numbers = _numbers(number)
    began, results, skipped = clock.monotonic(), dict[str, Any](), dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="chaos-servers-", dir=MEMORY) as place:
        os.chmod(place, 0o711)
        site = Site(Path(place))
        for name in names:
            scene_of = SCENES.get(name)
            if scene_of is not None and (why := scene_of.impossible()) is not None:
                print(f"SKIPPED: {name}: {why}", flush=True)
                skipped[name] = why
                continue
            with folder(name) as where:
                if scene_of is not None:
                    scene = scene_of(site, where, seed, number)
                else:
                    scene = CAMPAIGNS[name](site, where, seed, numbers)
                print(f"{name}: {scene.title} (seed {seed})", flush=True)
                start = clock.monotonic()
                verdict = scene.run()
                results[name] = {"good": verdict.good, **_report(verdict, scene.times, scene.counts)}
                print(f"  {'good' if verdict.good else 'BAD'} ({clock.monotonic() - start:.0f} s)", flush=True)
    good = all(result["good"] for result in results.values())
    seconds = round(clock.monotonic() - began)
    not_run = [name for name in (*CAMPAIGNS, *SCENES) if name not in names]
    summary = {"seed": seed, "seconds": seconds, "good": good, "skipped": skipped, "not run": not_run}
    print(json.dumps({**summary, "scenes": results}))
    return 0 if good else 1
