"""Handlers of very short jobs, one of which may do something else. Workers import this module."""

import ctypes
import os
import signal
import sys
from typing import Any

from scripted_handlers import write

from chargehand import Handler, Job


class Short(Handler[dict[str, Any], int]):
    """Keeps `start ID PID`; does what it is told, usually nothing; returns its process id."""

    def perform(self, job: Job[dict[str, Any]]) -> int:
        payload = job.payload
        if "ledger" in payload:
            write(payload["ledger"], "start", job.id, os.getpid())
        match payload.get("do"):
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hold":  # in C code, without releasing the interpreter
                ctypes.PyDLL(None).usleep(int(payload["seconds"] * 1e6))
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise ValueError("as told")
            case "print":
                sys.stdout.write(f"hello from {job.id}\n")
            case _:
                return os.getpid()
        return os.getpid()
