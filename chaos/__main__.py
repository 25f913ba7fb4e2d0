"""`python -m chaos`: kills and stops processes at random and checks the result.

Environment variables: JOBS, SEED, MINUTES, KEEP, ONLY (kills, limits, tiny, flows), and STORE (sqlite or postgres).
With APP=adreel the processes are those of Adreel: FILMS, KILLS, SEED, KEEP.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos import servers
from chaos.app import LIFTED, SETTLE, WORK
from chaos.budget import Budget, GivenUp
from chaos.campaign import Campaign
from chaos.flows import Flows
from chaos.flows import Found as FoundFlows
from chaos.judge import Verdict
from chaos.killer import Numbers
from chaos.output import folder, table, violations
from chaos.tiny import Found, Tiny
from chargehand import RestartPolicy, clock
from chargehand.model.job import DEFAULT_POLICY

MINUTES = 4.0
JOBS, WORKERS, NODES, ENQUEUERS = 10_000, 510, 21, 6
"""Numbers for the default duration; they scale with the duration."""
TINY_JOBS, TINY_KILLS = 100_000, 500
FLOWS, FLOW_KILLS, FLOW_NODES = 2_000, 150, 12
RUNS = ("kills", "limits", "tiny", "flows")
KILLING = 0.72
"""The share of the time with kills; the rest is for the last jobs, the evaluation and the second run."""


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        sys.exit(f"{name}={text!r} is not a number")


def _numbers() -> Numbers:
    minutes = _number("MINUTES", MINUTES)
    share = minutes / MINUTES
    if not 0 < share < 10_000:
        sys.exit(f"MINUTES={minutes:g} is out of range")
    return Numbers(
        jobs=max(1, round(_number("JOBS", JOBS * share))),
        seconds=60 * minutes * KILLING,
        workers=round(WORKERS * share),
        nodes=round(NODES * share),
        enqueuers=round(ENQUEUERS * share),
    )


def _limits() -> dict[str, str]:
    old, new = RestartPolicy(), LIFTED
    restarts = f"restarts: {old.rapid_limit} in {old.window:g} s, {old.lifetime_limit} in all → {new.rapid_limit:,}"
    pause = f"pause: {old.first_pause:g} to {old.longest_pause:g} s → {new.first_pause:g} to {new.longest_pause:g} s"
    breaker = f"breaker: a crew's idle crashes within {old.breaker_window:g} s → {new.breaker_window:g} s"
    poison = f"quarantine after {DEFAULT_POLICY.poison_crashes} crashes → the test queues such jobs again"
    return {
        restarts: "a random kill is not the worker's fault",
        pause: "so that there are always workers to kill",
        breaker: "the kills are the common reason of all crashes",
        poison: "nor the job's fault",
    }


def _report(verdict: Verdict) -> dict[str, int]:
    four = {
        "lost": len(verdict.lost),
        "completed twice": len(verdict.twice),
        "unexpected": len(verdict.unexpected),
        "orphans": len(verdict.orphans),
    }
    figures = {
        "acknowledged": verdict.acknowledged, "unsure": verdict.unsure, "of them there": verdict.unsure_there,
        **verdict.struck,
        "late outcomes fenced off": verdict.late, "executed": verdict.executed, "completed": verdict.completed, **four,
    }  # fmt: skip
    table(figures)
    print("limits lifted:")
    table(_limits())
    for kind in ("lost", "twice", "unexpected", "orphans"):
        violations(kind, getattr(verdict, kind))
    return figures


def _report_second(found: GivenUp) -> dict[str, Any]:
    figures = {"kills": found.kills, "workers": found.workers, "given up": found.failed}
    table(figures)
    for line in [*found.reasons, *(f"WRONG: {line}" for line in found.wrong)]:
        print(f"  {line}")
    return {**figures, "as it must be": found.good}


def _report_tiny(found: Found) -> dict[str, Any]:
    figures = {
        "acknowledged": found.jobs, "workers killed": found.kills, "of them charged to a job": found.with_a_job,
        "executed": found.executed, "lost": len(found.lost), "completed twice": len(found.twice),
        "charged though not begun": len(found.not_begun), "unexpected": len(found.wrong),
    }  # fmt: skip
    table(figures)
    violations("wrong", [*found.lost, *found.twice, *found.not_begun, *found.wrong])
    return {**figures, "as it must be": found.good}


def _report_flows(found: FoundFlows) -> dict[str, Any]:
    figures = {
        "flows": found.flows, "jobs": found.jobs, **{f"{whom} killed": count for whom, count in found.struck.items()},
        "quarantined and released by hand": found.released, "ends": found.ends, "lost": len(found.lost),
        "completed twice": len(found.twice), "hung": len(found.hung), "unexpected": len(found.wrong),
    }  # fmt: skip
    table(figures)
    violations("wrong", [*found.lost, *found.twice, *found.hung, *found.wrong])
    return {**figures, "as it must be": found.good}


def _chosen() -> list[str]:
    names = [name for name in os.environ.get("ONLY", "").split(",") if name]
    if unknown := set(names) - set(RUNS):
        sys.exit(f"ONLY={','.join(sorted(unknown))} is unknown: {', '.join(RUNS)}")
    return names or list(RUNS)


def _timed(title: str, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    print(title, flush=True)
    began = clock.monotonic()
    figures = act()
    seconds = round(clock.monotonic() - began)
    print(f"  ({seconds} s)", flush=True)
    return {**figures, "seconds": seconds}


def _on_server() -> int:
    if (packages := servers.missing()) is not None:
        sys.exit(f"STORE=postgres needs more packages: pip install {packages}")
    from chaos import postgres

    return postgres.main(_number)


def main() -> int:
    """Runs all parts; returns 0 if no job is lost, completed twice, unexpected or left, and the others pass, too."""
    if sys.argv[1:]:  # no option starts minutes of kills by mistake
        print(__doc__)
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    os.environ.pop("CHARGEHAND_URL", None)
    if os.environ.get("KEEP") and Path(os.environ["KEEP"]).exists():
        sys.exit(f"KEEP={os.environ['KEEP']} already exists: name a new folder")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    store = os.environ.get("STORE", "sqlite")
    if (name := os.environ.get("APP", "")) not in ("", "adreel"):
        sys.exit(f"APP={name} is unknown: adreel, or nothing")
    if name:
        if store != "sqlite":
            sys.exit(f"APP={name} runs on SQLite: it has no STORE={store}")
        from chaos import adreel  # it needs the application

        return adreel.main(_number)
    if store == "postgres":
        return _on_server()
    if store != "sqlite":
        sys.exit(f"STORE={store} is unknown: sqlite or postgres")
    numbers, seed = _numbers(), int(_number("SEED", int.from_bytes(os.urandom(3), "big")))
    share = _number("MINUTES", MINUTES) / MINUTES
    tiny_jobs, tiny_kills = round(_number("JOBS", TINY_JOBS * share)), round(TINY_KILLS * share)
    flow_count, flow_kills, flow_nodes = (round(each * share) for each in (FLOWS, FLOW_KILLS, FLOW_NODES))
    good: list[bool] = []

    def kills() -> dict[str, Any]:
        with folder("first") as place:
            verdict = Campaign(place, numbers, seed).run()
        good.append(verdict.good)
        return _report(verdict)

    def limits() -> dict[str, Any]:
        with folder("second") as place:
            found = Budget(place).run()
        good.append(found.good)
        return _report_second(found)

    def tiny() -> dict[str, Any]:
        with folder("tiny") as place:
            found = Tiny(place, tiny_jobs, tiny_kills, seed).run()
        good.append(found.good)
        return _report_tiny(found)

    def flows() -> dict[str, Any]:
        with folder("flows") as place:
            found = Flows(place, flow_count, flow_kills, flow_nodes, seed).run()
        good.append(found.good)
        return _report_flows(found)

    title = (
        f"seed {seed}: {numbers.jobs:,} jobs; {numbers.workers} SIGKILL or SIGSTOP of {WORK + SETTLE} workers, "
        f"{numbers.nodes} kill -9 of host, node or both, within {numbers.seconds:.0f} s"
    )
    runs = {
        "kills": (title, kills),
        "limits": ("default limits, idle workers killed repeatedly: the crew must be given up", limits),
        "tiny": (f"seed {seed}: {tiny_jobs:,} tiny jobs, {tiny_kills} kill -9 of workers", tiny),
        "flows": (
            (
                f"seed {seed}: {flow_count:,} flows of 1 → n → 1; {flow_kills} kill -9 of workers, "
                f"{flow_nodes} of host, node or both"
            ),
            flows,
        ),
    }  # fmt: skip
    results = {name: _timed(*runs[name]) for name in _chosen()}
    print(json.dumps({"seed": seed, **results, "good": all(good)}))
    return 0 if all(good) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; all started processes have been stopped")
