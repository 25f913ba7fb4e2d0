# pyright: basic, reportMissingImports=false
"""Awa: two processes with its Python client; jobs that wait run in threads."""

import asyncio
from dataclasses import dataclass

import agent
from awa import AsyncClient, Client

QUEUE = "default"
URL = agent.URL.replace("@/", "@localhost/")
"""With a name of a host, which the folder of the socket replaces."""


@dataclass
class Work:
    """The arguments of all kinds of jobs."""

    kind: str
    tag: str


def setup() -> None:
    client = Client(URL)
    client.migrate()
    client.install_queue_storage(schema="awa")


def work(mode: str) -> None:
    asyncio.run(_work(100 if mode == "throughput" else 1))


async def _work(most: int) -> None:
    client = AsyncClient(URL)

    @client.task(Work, queue=QUEUE)
    async def perform(job) -> None:
        if job.args.kind == "note":
            agent.note(job.args.tag)
        else:
            await asyncio.to_thread(agent.JOBS[job.args.kind], job.args.tag)

    await client.start([(QUEUE, most)])
    await asyncio.Event().wait()


def connect():
    client = Client(URL)

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        jobs = [Work(kind, tag) for tag in tags]
        if bulk:
            client.enqueue_many_copy(jobs, queue=QUEUE, max_attempts=agent.ATTEMPTS)
            return
        for job in jobs:
            client.insert(job, queue=QUEUE, max_attempts=agent.ATTEMPTS)

    def queue():
        return next((each for each in client.queue_stats() if each.queue == QUEUE), None)

    def unfinished() -> int:
        found = queue()
        return 0 if found is None else found.total_queued + found.running

    def failed() -> int:
        found = queue()
        return 0 if found is None else found.failed

    return enqueue, unfinished, failed
