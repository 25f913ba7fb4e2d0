"""Runs a program of this folder: `launch.py PROGRAM setup|work MODE|client`.

A program has three functions. `setup()` prepares an empty server. `work(mode)` runs workers until it is killed.
`connect()` returns three functions for a client. The first enqueues jobs of a kind with these tags, one by one or in
bulk; the others return how many jobs have not ended, and how many have failed for good. The client answers requests,
one line of JSON each.
"""

import json
import os
import sys
import time
from importlib import import_module
from typing import Any


def main() -> None:
    """Does what the command line says."""
    name, command, *rest = sys.argv[1:]
    if rest:
        os.environ["PEERS_MODE"] = rest[0]
    program: Any = import_module(name)
    if command == "setup":
        program.setup()
    elif command == "work":
        program.work(*rest)
    else:
        _serve(*program.connect())


def _serve(enqueue: Any, unfinished: Any, failed: Any) -> None:
    answer: dict[str, int] = {}
    print(json.dumps(answer), flush=True)  # ready
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "enqueue":
            began = time.monotonic_ns()
            enqueue(request["kind"], request["tags"], request["bulk"])
            answer = {"began": began, "ended": time.monotonic_ns()}
        else:
            answer = {"count": unfinished() if request["do"] == "unfinished" else failed()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
