"""`make example`: runs the node, its workers and the dashboard, keeps enqueueing jobs, and prints changes.

Kill a worker and watch.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from chargehand import clock, log
from chargehand.model.job import State
from chargehand.model.records import JobFilter

from .jobs import Song, hand, measure

WAITING = 6
"""Number of songs kept in the queue, so that there is always work."""


def main() -> int:
    words = argparse.ArgumentParser(prog="make example", description=__doc__)
    words.add_argument(
        "--seconds",
        type=float,
        default=None,
        help="stop after this many seconds (default: 30 if the output is not a terminal)",
    )
    words.add_argument(
        "--kill-every", type=float, default=None, metavar="S", help="kill a random worker every S seconds"
    )
    arguments = words.parse_args()
    seconds = arguments.seconds or (None if sys.stdout.isatty() else 30.0)
    over = threading.Event()

    def stop(number: int, frame: object) -> None:
        over.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    hand.log_level = "WARNING"  # the node's log; this program prints the other lines
    log.configure(hand.log_level)
    print(f"store {hand.path}\nstop with Ctrl+C; in another terminal try:")
    print("  kill -9 PID                                                 # the pid of any worker in the list below")
    print(f"  .venv/bin/chargehand status --store {hand.path}")
    print(f"  .venv/bin/chargehand jobs list --store {hand.path}")
    print(f"  .venv/bin/chargehand dashboard --store {hand.path}   # opens the dashboard\n", flush=True)
    with hand.running() as host, dashboard():
        if not host.ready.wait(30):
            print("the node did not start; see the log above", file=sys.stderr)
            return 1
        watch(over, seconds, arguments.kill_every)
        print("stopping: running jobs finish, no job is lost", flush=True)
    summary()
    hand.close()
    return 0


@contextmanager
def dashboard() -> Generator[None]:
    """Serves the dashboard from a process of its own, which prints the address on the terminal."""
    serve = [sys.executable, "-m", "chargehand", "serve", "examples.demo.jobs:hand", "--port", "0"]
    server = subprocess.Popen([*serve, "--log-level", "WARNING"], env={**os.environ, "EMBED_WORKERS": "false"})
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def watch(over: threading.Event, seconds: float | None, kill_every: float | None) -> None:
    began = clock.monotonic()
    next_kill = began + (kill_every or 0)
    seen: dict[str, Any] = {}
    number = 0
    while not over.wait(0.2):
        now = clock.monotonic()
        if seconds is not None and now - began >= seconds:
            return
        waiting = sum(count.queued for count in hand.counts() if count.queue == "measure")
        for _ in range(WAITING - waiting):
            number += 1
            song = Song(f"song {number:03}", random.uniform(0.5, 2.0))
            measure.enqueue(song, label=song.title)
        view = hand.status()
        if view is None:
            print("  (the node is being restarted)", flush=True)
            continue
        tell_changes(view["workers"], seen)
        if kill_every and now >= next_kill:
            next_kill = now + kill_every
            victim = random.choice([w["pid"] for w in view["workers"] if w["pid"]])
            print(f"  kill -9 {victim}", flush=True)
            os.kill(victim, signal.SIGKILL)


def tell_changes(workers: list[dict[str, Any]], seen: dict[str, Any]) -> None:
    """Prints one line for every worker whose state or job changed."""
    for worker in workers:
        label = hand.job(worker["current_job"]).label if worker["current_job"] else ""
        state = (worker["status"], worker["pid"], label)
        if seen.get(worker["component"]) != state:
            seen[worker["component"]] = state
            restarts = f", restarted {worker['restart_count']} ×" if worker["restart_count"] else ""
            doing = f"runs {label}" if label else "idle" if worker["status"] == "healthy" else ""
            print(
                f"{worker['component']:18} pid {worker['pid'] or '–':<8} {worker['status']:9} {doing}{restarts}",
                flush=True,
            )


def summary() -> None:
    print("\nqueue      done  waiting  failed  crashes survived")
    crashed: dict[str, int] = {}
    for job in hand.jobs(JobFilter(state=State.DONE, limit=1000)):
        crashed[job.queue] = crashed.get(job.queue, 0) + job.crashes
    for count in hand.counts():
        survived = crashed.get(count.queue, 0)
        print(f"{count.queue:8} {count.done:6} {count.queued:8} {count.failed:7} {survived:17}")


if __name__ == "__main__":
    sys.exit(main())
