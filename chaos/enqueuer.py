"""The enqueuing process: writes every id to its own ledger, synced, before the call and again after the answer.

An id with `try` but without `ack` is uncertain: the job may exist or not. The process may be killed at any time; the
next one continues where it stopped.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos import ledger
from chaos.app import hand_of, insert
from chargehand import Chargehand, ChargehandError, clock
from chargehand.model.job import NewJob
from chargehand.processes.prctl import die_with_parent

AT_ONCE = 0.05
"""The share of jobs that is enqueued at the start, so that workers rarely wait."""
KEYS = 20
FAILED_WAIT = 0.05
"""Seconds between a failed call and the next one."""
LONGEST_MS = 50.0
HOLD_MS, LINGER_MS = 3.0, 20.0
"""Maximum sleep of a transactional handler in its transaction, and after it."""
HOW = ("one", "few", "bulk", "deal", "void", "key")
HOW_OFTEN = (60, 6, 2, 12, 2, 18)
DO = ("nothing", "raise", "child", "follow")
DO_HOW_OFTEN = (85, 4, 5, 6)


class RollBack(Exception):
    """Raised inside a transaction that must be rolled back."""


class Enqueuer:
    """Enqueues jobs in every supported way, evenly until the deadline."""

    def __init__(self, folder: Path, jobs: int, began: float, seconds: float, seed: str) -> None:
        self._folder, self._jobs, self._began, self._seconds = folder, jobs, began, seconds
        self._hand: Chargehand = hand_of(folder, "lifted")
        self._chance = random.Random(seed)
        self._known: set[str] = set()

    def run(self) -> None:
        """Runs until enough jobs have been acknowledged. A key that returns an existing job counts once."""
        path = self._folder / "ledger"
        self._known = {words[-1] for words in ledger.read(path) if words[0] == "ack"}
        ledger.append(path, [[""]])  # terminates a partial line of an earlier process
        while len(self._known) < self._jobs:
            ahead = len(self._known) / self._jobs - AT_ONCE
            clock.sleep(max(0.0, self._began + ahead * self._seconds - clock.monotonic()))
            self._call(self._chance.choices(HOW, HOW_OFTEN)[0])
        self._hand.close()

    def _call(self, how: str) -> None:
        """Makes one call and records its result in the ledger."""
        many = {"few": (2, 30), "bulk": (33, 150), "deal": (1, 3), "void": (1, 3)}.get(how, (1, 1))
        jobs = [self._new_job(how) for _ in range(self._chance.randint(*many))]
        self._write([("try", job.id, how) for job in jobs])
        try:
            got = self._enqueue(how, jobs)
        except RollBack:
            self._write([("void", job.id) for job in jobs])
        except ChargehandError as error:
            self._write([("fail", job.id, type(error).__name__, error) for job in jobs])
            clock.sleep(FAILED_WAIT)
        else:
            self._write([("ack", *pair) for pair in got])
            self._known.update(answered for _, answered in got)

    def _enqueue(self, how: str, jobs: Sequence[NewJob]) -> list[tuple[str, str]]:
        """Records the requested and the returned id."""
        if how in ("deal", "void"):
            with self._hand.transaction() as tx:
                for job in jobs:
                    tx.execute(insert("chaos_deal"), (job.id,))
                done = tx.jobs.enqueue(jobs)
                if how == "void":
                    raise RollBack
        else:
            done = self._hand.internal.enqueue(jobs)
        return [(job.id, each.id) for job, each in zip(jobs, done, strict=True)]

    def _new_job(self, how: str) -> NewJob:
        chance = self._chance
        payload: dict[str, Any] = {"ms": chance.uniform(0, LONGEST_MS), "do": chance.choices(DO, DO_HOW_OFTEN)[0]}
        options: dict[str, Any] = {"key": f"key-{chance.randrange(KEYS)}"} if how == "key" else {}
        if chance.random() < 0.25:
            payload |= {"do": "settle", "hold": chance.choice((0.0, chance.uniform(0, HOLD_MS)))}
            payload |= {"linger": chance.choice((0.0, chance.uniform(0, LINGER_MS)))}
            return self._hand.find_crew("settle").new_job(payload, **options)
        if payload["do"] == "child":
            payload["child"] = chance.choice(("sleep", "session", "daemon", "fork"))
        return self._hand.find_crew("work").new_job(payload, **options)

    def _write(self, lines: Sequence[Sequence[object]]) -> None:
        ledger.append(self._folder / "ledger", lines, sync=True)


def main() -> None:
    """Arguments: pid of the test, folder, number of jobs, start time, duration in seconds, seed."""
    parent, folder, jobs, began, seconds, seed = sys.argv[1:]
    die_with_parent(int(parent))
    Enqueuer(Path(folder), int(jobs), float(began), float(seconds), seed).run()


if __name__ == "__main__":
    main()
