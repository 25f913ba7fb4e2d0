"""Faults of a handler's `set_up`, named by the environment variable CHARGEHAND_FAULT_SET_UP of its crew."""

import os
from typing import Any

from chargehand import clock, errors
from chargehand.handler import Handler

VARIABLE = "CHARGEHAND_FAULT_SET_UP"
FOREVER = 365 * 86_400.0

SET_UP_FAULTS: dict[str, str] = {
    "slow:SECONDS": "Takes so long to load.",
    "slow:SECONDS:MORE": "Takes so long to load, after it has asked for MORE seconds.",
    "forever": "Never ends.",
    "raise": "Raises a RuntimeError.",
    "configuration": "Raises a ConfigurationError.",
    "unrecoverable": "Raises an UnrecoverableError.",
    "exit:CODE": "Ends the process at once with that code.",
    "segfault": "Ends the process with SIGSEGV, out of C code.",
    "once:FILE:FAULT": "Creates the file and does the fault, if there is no such file yet; its path has no colon.",
}
"""What the variable may say, each with one sentence."""


def misload(handler: Handler[Any, Any]) -> None:
    """Do what the variable says; nothing if it is not set."""
    fault = os.environ.get(VARIABLE, "")
    if fault:
        _misload(handler, fault)


def _misload(handler: Handler[Any, Any], fault: str) -> None:
    match fault.split(":"):
        case ["slow", seconds]:
            clock.sleep(float(seconds))
        case ["slow", seconds, more]:
            handler.more_time(float(more))
            clock.sleep(float(seconds))
        case ["forever"]:
            clock.sleep(FOREVER)
        case ["raise"]:
            raise RuntimeError("the model file is missing, as told")
        case ["configuration"]:
            raise errors.ConfigurationError("the model's name is wrong, as told")
        case ["unrecoverable"]:
            raise errors.UnrecoverableError("this machine has no GPU, as told")
        case ["exit", code]:
            os._exit(int(code))
        case ["segfault"]:
            from chargehand.testing.faults_deeds import segfault

            segfault()
        case ["once", path, *rest]:
            if _first(path):
                _misload(handler, ":".join(rest))
        case _:
            raise errors.ConfigurationError(f"{VARIABLE} is {fault!r}; allowed are: {', '.join(SET_UP_FAULTS)}")


def _first(path: str) -> bool:
    """Whether the file was not there; now it is. Of several processes one is the first."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
