"""Measures the cost of an idle node with two bare workers, and of the host that waits beside it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

import msgspec

from bench import bare
from bench.hosting import SPEC, CrewSpec, Spec
from bench.processes import cpu, pss
from bench.row import Row, measures
from bench.scene import PATIENCE, ROOT, folder, stage
from chargehand import clock
from chargehand.model.figures import WINDOW
from chargehand.model.past import STEP
from chargehand.testing import eventually

SETTLE = WINDOW + STEP + 2
"""Until then, the node reads its store for the charts, because something has changed."""
SECONDS = 25.0


@measures("idle CPU", "idle memory")
def idle() -> Iterable[Row]:
    """Includes the node with its store thread, and its workers, but not the host and this process."""
    with stage(CrewSpec("nothing", "Nothing", 2)) as on:
        node, workers = on.pids()
        clock.sleep(SETTLE)
        began, before = clock.monotonic(), [cpu(pid) for pid in (node, *workers)]
        clock.sleep(SECONDS)
        after, took = [cpu(pid) for pid in (node, *workers)], clock.monotonic() - began
        memory = pss([node, *workers])
        alone = pss([node])
        limit = bare.memory()
    used = [(sum(now) - sum(then)) / took * 100 for now, then in zip(after, before, strict=True)]
    shares = f"node {used[0]:.3f} %, workers {' and '.join(f'{each:.3f}' for each in used[1:])} %"
    yield Row("idle CPU", sum(used), "% of a core", 0.0, 0.1, note=f"wake-ups: {shares}")
    yield Row("idle memory", memory, "MiB", limit, 45.0, note=f"{alone:.0f} MiB of it the node: its imports")


@measures("memory of the host")
def host() -> Iterable[Row]:
    """The process of `chargehand work`, which starts the node and waits; the limit is an interpreter that waits."""
    with folder() as path:
        spec = Spec(store=str(path / "bench.db"), crews=(CrewSpec("nothing", "Nothing", 1),))
        env = {**os.environ, SPEC: msgspec.json.encode(spec).decode()}
        with open(path / "log", "wb") as log:
            words = [sys.executable, "-m", "chargehand", "work", "bench.work_app:hand"]
            process = subprocess.Popen(words, env=env, cwd=ROOT, stdout=log, stderr=log)
        try:
            log_of = path / "log"
            eventually(lambda: "event=worker-ready" in log_of.read_text(), PATIENCE, what="the worker is ready")
            memory = pss([process.pid])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
    yield Row("memory of the host", memory, "MiB", bare.waiting(), 12.0, note="its imports")
