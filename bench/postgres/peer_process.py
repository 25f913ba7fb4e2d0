# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportMissingParameterType=false, reportUntypedFunctionDecorator=false
"""A process of PgQueuer, run in an environment of its own: `install URL`, `fill URL JOBS`, `work URL BATCH`.

A worker prints `ready`, waits for a line, runs until the queue is empty, and prints `ended`. The event loop and the
driver are those of PgQueuer's own command, `pgq run`; all other settings have their defaults.
"""

import sys

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def fill(url: str, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).enqueue(["nothing"] * jobs, [None] * jobs, [0] * jobs)
    await connection.close()


async def work(url: str, batch: int) -> None:
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("nothing")
    async def nothing(job) -> None:
        return None

    print("ready", flush=True)
    sys.stdin.readline()
    # 0: the default. Draining ends the process; until then it is the same loop.
    size = {"batch_size": batch} if batch else {}
    await queuer.qm.run(mode=QueueExecutionMode.drain, **size)
    print("ended", flush=True)


def main() -> None:
    what, url, *rest = sys.argv[1:]
    uvloop.run({"install": install, "fill": fill, "work": work}[what](url, *map(int, rest)))


if __name__ == "__main__":
    main()
