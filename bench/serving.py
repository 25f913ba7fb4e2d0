"""An API process that serves events of a node hosted elsewhere, until its standard input is closed."""

import asyncio
import sys

import msgspec
import uvicorn

from bench.hosting import Spec, hand_of
from chargehand.web.api import create
from chargehand.web.site import Site


async def serve(spec: Spec, port: int) -> None:
    site = Site(hand_of(spec), "")
    server = uvicorn.Server(uvicorn.Config(create(site), port=port, log_level="warning"))
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(site.hand.with_token("ready"), flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    site.closing.set()
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Spec), int(sys.argv[2])))
