# pyright: basic, reportMissingImports=false
"""Huey with Redis: `huey_consumer --worker-type process --workers 2`."""

import agent
from huey import RedisHuey

huey = RedisHuey("peers", url=agent.URL, results=False)


def _task(kind):
    @huey.task(name=kind, retries=agent.ATTEMPTS - 1)
    def perform(tag):
        agent.JOBS[kind](tag)

    return perform


tasks = {kind: _task(kind) for kind in agent.JOBS}


@huey.signal("error")
def failed_attempt(signal, task, error=None) -> None:
    if not task.retries:
        agent.say("lost", task.args[0])


def setup() -> None:
    huey.storage.conn.flushall()


def work(mode: str) -> None:
    agent.replace_by(
        "huey_consumer", "huey_program.huey", "--worker-type", "process", "--workers", str(agent.PROCESSES), "--quiet",
    )  # fmt: skip


def connect():
    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        for tag in tags:
            tasks[kind](tag)

    return enqueue, lambda: huey.pending_count() + huey.scheduled_count(), agent.lost
