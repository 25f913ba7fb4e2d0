# pyright: basic, reportMissingImports=false
"""PgQueuer: two processes with the loop of its own command, `pgq run`."""

import asyncio
import signal

import agent
import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.queries import Queries


async def _install() -> None:
    connection = await asyncpg.connect(agent.URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


def _retries(parameters):
    return DatabaseRetryEntrypointExecutor(parameters, max_attempts=agent.ATTEMPTS - 1)


async def _run(batch: int | None) -> None:
    connection = await asyncpg.connect(agent.URL)
    queuer = PgQueuer(AsyncpgDriver(connection))

    def enter(kind: str) -> None:
        @queuer.entrypoint(kind, executor_factory=_retries)
        async def perform(job) -> None:
            tag = job.payload.decode()
            if kind == "note":
                agent.note(tag)
            else:
                await asyncio.to_thread(agent.JOBS[kind], tag)

    for kind in agent.JOBS:
        enter(kind)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(**({"batch_size": batch} if batch else {}))


def setup() -> None:
    uvloop.run(_install())


def work(mode: str) -> None:
    uvloop.run(_run(200 if mode == "throughput" else None))


def connect():
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(agent.URL))
    queries = Queries(AsyncpgDriver(connection))

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        payloads = [tag.encode() for tag in tags]
        if bulk:
            loop.run_until_complete(queries.enqueue([kind] * len(tags), payloads, [0] * len(tags)))
            return
        for payload in payloads:
            loop.run_until_complete(queries.enqueue(kind, payload))

    def unfinished() -> int:
        return loop.run_until_complete(connection.fetchval("SELECT count(*) FROM pgqueuer"))

    def failed() -> int:
        return loop.run_until_complete(
            connection.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'exception'")
        )

    return enqueue, unfinished, failed
