# pyright: basic, reportMissingImports=false
"""Chargehand: `chargehand work`, with two workers and the defaults."""

import agent

from chargehand import Chargehand, Handler, Job

hand = Chargehand(agent.URL)
crew = hand.crew("jobs", "chargehand_program:Jobs", takes=list, workers=agent.PROCESSES, max_attempts=agent.ATTEMPTS)


class Jobs(Handler[list, None]):
    """Performs the jobs of all kinds."""

    def perform(self, job: Job[list]) -> None:
        """Performs one."""
        kind, tag = job.payload
        agent.JOBS[kind](tag)


def setup() -> None:
    """Does nothing: `chargehand work` makes the store."""


def work(mode: str) -> None:
    agent.replace_by("chargehand", "work", "chargehand_program:hand")


def connect():
    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        if bulk:
            crew.enqueue_many([[kind, tag] for tag in tags])
            return
        for tag in tags:
            crew.enqueue([kind, tag])

    def count(*states: str) -> int:
        return sum(getattr(counts, state) for counts in hand.counts() for state in states)

    return enqueue, lambda: count("queued", "running"), lambda: count("failed")
