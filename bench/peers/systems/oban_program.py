# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Oban for Python: two processes of `oban start`."""

import asyncio

import agent
import psycopg
from oban import Oban, worker
from psycopg_pool import AsyncConnectionPool


@worker(queue="default", max_attempts=agent.ATTEMPTS)
class Job:
    """Performs the jobs of all kinds."""

    async def process(self, job) -> None:
        """Performs one; a job that waits does so in a thread, because all jobs of a process share one event loop."""
        kind, tag = job.args["kind"], job.args["tag"]
        if kind == "note":
            agent.note(tag)
        else:
            await asyncio.to_thread(agent.JOBS[kind], tag)

    def backoff(self, job) -> int:
        """Returns the pause before the next attempt."""
        return 1


def setup() -> None:
    agent.call("oban", "install", "--dsn", agent.URL)


def work(mode: str) -> None:
    limit = "100" if mode == "throughput" else "1"
    agent.replace_by(
        "oban", "start", "--dsn", agent.URL, "--queues", f"default:{limit}", "--cron-modules", "oban_program",
        "--log-level", "error",
    )  # fmt: skip


def connect():
    loop = asyncio.new_event_loop()

    async def begin() -> Oban:
        pool = AsyncConnectionPool(agent.URL, open=False, min_size=1, max_size=2)
        await pool.open()
        return Oban(pool=pool)

    oban = loop.run_until_complete(begin())
    connection = psycopg.connect(agent.URL, autocommit=True)

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        jobs = [Job.new({"kind": kind, "tag": tag}) for tag in tags]
        if bulk:
            for first in range(0, len(jobs), 1000):
                loop.run_until_complete(oban.enqueue_many(jobs[first : first + 1000]))
            return
        for job in jobs:
            loop.run_until_complete(oban.enqueue(job))

    def count(*states: str) -> int:
        found = connection.execute("SELECT count(*) FROM oban_jobs WHERE state::text = ANY (%s)", (list(states),))
        return found.fetchall()[0][0]

    return enqueue, lambda: count("available", "executing", "retryable", "scheduled"), lambda: count("discarded")
