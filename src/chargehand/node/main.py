"""The entry point of a node process: reads the plan from the host's socket, and runs the node until it has stopped."""

import gc
import os
import socket
import sys
from contextlib import suppress

import msgspec

from chargehand import log
from chargehand.errors import EXIT_STORE, ChargehandError
from chargehand.node.log_buffer import LogBuffer
from chargehand.node.node import Node
from chargehand.processes.prctl import adopt_orphans
from chargehand.protocol.frame import encode
from chargehand.settings.plan import NodePlan


def main(tether_fd: int, lock_fd: int | None = None) -> None:
    """Run a node. The inherited descriptor `lock_fd` holds the lock that makes it the only node of its store.

    A host of version 0.1.0, which runs on while the package is upgraded, does not name the descriptor.
    """
    if lock_fd is not None:
        os.set_inheritable(lock_fd, False)
    tether = socket.socket(fileno=tether_fd)
    tether.set_inheritable(False)
    plan = _read_plan(tether)
    journal = LogBuffer()
    log.configure(plan.log_level, "node", style=plan.log, in_thread=True, journal=journal)
    adopt_orphans()
    try:
        node = Node(plan, tether, lock_fd, journal)
    except (ChargehandError, OSError) as error:
        log.error("the node cannot start", why=error)
        code = error.exit_code if isinstance(error, ChargehandError) else EXIT_STORE
        tether.setblocking(True)
        tether.sendall(encode("FAILED", {"code": code, "why": str(error)}))
        log.finish()
        sys.exit(code)
    node.watch_signals()
    _collect_less_garbage()
    code = node.run()
    log.finish()
    with suppress(OSError, ValueError):  # the other end of the pipe may be gone
        sys.stderr.flush()
    os._exit(code)  # all is written and closed: the interpreter need not be torn down, which takes some 30 ms


def _collect_less_garbage() -> None:
    """Let the garbage collector run less often.

    It looks at the claims and outcomes of thousands of jobs, which are in no cycles, and all threads wait for it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _read_plan(tether: socket.socket) -> NodePlan:
    data = bytearray()
    while not data.endswith(b"\n"):
        ahead = tether.recv(1 << 16, socket.MSG_PEEK)
        if not ahead:
            sys.exit(0)  # the host exited before it sent the plan
        # Read only this one line: a stop request may follow it.
        data += tether.recv(ahead.find(b"\n") + 1 or len(ahead))
    return msgspec.json.decode(bytes(data).partition(b"|")[2], type=NodePlan)
