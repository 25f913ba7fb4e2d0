"""Faults of a handler's `set_up`, selected by the environment variable CHARGEHAND_FAULT_SET_UP of its crew."""

import os
from typing import Any

from chargehand import clock, errors
from chargehand.handler import Handler

VARIABLE = "CHARGEHAND_FAULT_SET_UP"
FOREVER = 365 * 86_400.0

SET_UP_FAULTS: dict[str, str] = {
    "slow:SECONDS": "Takes SECONDS to load.",
    "slow:SECONDS:MORE": "Takes SECONDS to load, after it has requested MORE seconds.",
    "forever": "Never ends.",
    "raise": "Raises a RuntimeError.",
    "configuration": "Raises a ConfigurationError.",
    "unrecoverable": "Raises an UnrecoverableError.",
    "exit:CODE": "Ends the process at once with this code.",
    "segfault": "Ends the process with SIGSEGV, from C code.",
    "once:FILE:FAULT": "Creates the file and performs the fault, unless the file exists; the path has no colon.",
}
"""The values of the variable, each with its description."""


def misload(handler: Handler[Any, Any]) -> None:
    """Performs the fault that the variable selects; does nothing if it is not set."""
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
            raise errors.ConfigurationError(f"{VARIABLE} is {fault!r}; must be one of: {', '.join(SET_UP_FAULTS)}")


def _first(path: str) -> bool:
    """Creates the file; returns False if it exists. Atomic: of several processes, only one gets True."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
