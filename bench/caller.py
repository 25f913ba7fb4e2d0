"""A caller in a separate process: `python -m bench.caller enqueue|latency SPEC NUMBER`, started by the measurements.

The process prints `ready`, waits for a line, runs its part, and prints the result as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from bench.bare import pace
from bench.hosting import Spec, hand_of
from bench.processes import cpu
from bench.scene import Stage, ended, interpreter
from chargehand import Crew, clock

SECONDS = 2.0
"""How long callers enqueue."""


def _enqueue(crew: Crew[Any, Any], seconds: float) -> list[float]:
    """Enqueues single jobs for a duration; returns their number, the start and the end."""
    began = clock.monotonic()
    count = 0
    while (now := clock.monotonic()) < began + seconds:
        crew.enqueue(None)
        count += 1
    return [count, began, now]


def _latency(crew: Crew[Any, Any], count: float) -> list[float]:
    """Enqueues jobs that report their start, one after the other; returns the seconds from each call to the start."""
    took: list[float] = []
    for _ in range(int(count)):
        pace()
        began = clock.monotonic()
        took.append(crew.enqueue(None).wait(30) / 1e9 - began)
    return took


def main() -> None:
    """Runs the part given on the command line."""
    what, spec, number = sys.argv[1:]
    hand = hand_of(msgspec.json.decode(spec, type=Spec))
    crew = next(iter(hand.crews.values()))
    crew.enqueue(None).job()  # connect before the measurement starts
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({"enqueue": _enqueue, "latency": _latency}[what](crew, float(number))), flush=True)


class Caller:
    """One such process, as seen by the process that started it."""

    def __init__(self, what: str, spec: Spec, number: float) -> None:
        text = msgspec.json.encode(spec).decode()
        self._process: subprocess.Popen[bytes] = interpreter("-m", "bench.caller", what, text, str(number))

    def line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a caller failed")
        return line

    def go(self) -> None:
        """Starts the measurement."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def end(self) -> None:
        ended(self._process)


@contextmanager
def callers(count: int, what: str, spec: Spec, number: float) -> Generator[list[Caller]]:
    """Starts this number of callers and waits until they are ready."""
    made = [Caller(what, spec, number) for _ in range(count)]
    try:
        for caller in made:
            caller.line()
        yield made
    finally:
        for caller in made:
            caller.end()


def ask(count: int, what: str, spec: Spec, number: float) -> list[list[float]]:
    """Returns the results of this number of concurrent callers."""
    with callers(count, what, spec, number) as made:
        for caller in made:
            caller.go()
        return [json.loads(caller.line()) for caller in made]


def rate_of(count: int, on: Stage) -> tuple[float, float]:
    """Returns jobs per second of this number of callers, each waiting for durability, and the node's CPU seconds per
    job.
    """
    node, _ = on.pids()
    before = sum(cpu(node))
    seen = ask(count, "enqueue", on.spec, SECONDS)
    jobs = sum(number for number, _, _ in seen)
    took = max(end for _, _, end in seen) - min(begin for _, begin, _ in seen)
    return jobs / took, (sum(cpu(node)) - before) / jobs


if __name__ == "__main__":
    main()
