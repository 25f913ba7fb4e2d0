"""What the programs of all systems share: the jobs.

Only the standard library: every system has an environment of its own.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

URL = os.environ.get("PEERS_URL", "")
"""The address of the server, or the file of the store."""
LOG = os.environ.get("PEERS_LOG", "")
"""The file to which jobs append a line when they start or end."""
FOLDER = os.path.dirname(os.path.abspath(__file__))
PROCESSES = 2
ATTEMPTS = 3
"""How often a job is tried, by all systems."""
MODE = "PEERS_MODE"
"""The environment variable with the mode of the workers: `throughput` or `safe`."""
_log: int | None = None


def say(word: str, tag: str) -> None:
    """Appends a line to the log: what happened to which job, when, and in which process."""
    global _log
    if _log is None:
        _log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_log, f"{word} {tag} {time.monotonic_ns()} {os.getpid()}\n".encode())


def note(tag: str) -> None:
    """Is the job of the throughput and of the latency: it only says that it started."""
    say("start", tag)


def hold(tag: str) -> None:
    """Is the job whose worker is killed. It takes two seconds."""
    say("start", tag)
    time.sleep(2)  # noqa: TID251 (there is no Chargehand in this environment)
    say("end", tag)


_broken: bool | None = None


def fragile(tag: str) -> None:
    """Is the job of the broken process: the first process that performs one is broken from then on, as after a lost
    CUDA context. Every job that it performs fails at once; in a sound process each takes 20 ms."""
    global _broken
    if _broken is None:
        try:
            os.close(os.open(f"{LOG}.broken", os.O_CREAT | os.O_EXCL))
            _broken = True
        except FileExistsError:
            _broken = False
    if _broken:
        say("fail", tag)
        raise RuntimeError("this process is broken")
    say("start", tag)
    time.sleep(0.02)  # noqa: TID251
    say("end", tag)


JOBS: dict[str, Callable[[str], None]] = {"note": note, "hold": hold, "fragile": fragile}


def lost() -> int:
    """Returns how many jobs have failed for good, from the log: for systems that do not keep failed jobs."""
    with open(LOG) as log:
        return sum(line.startswith("lost ") for line in log)


def _program(name: str) -> str:
    return os.path.join(os.path.dirname(sys.executable), name)


def call(*command: str) -> None:
    """Runs a command of this environment."""
    subprocess.run([_program(command[0]), *command[1:]], check=True, stdout=subprocess.DEVNULL)


def replace_by(*command: str) -> None:
    """Runs a command of this environment in the place of this process."""
    path = os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH"))))
    os.execve(_program(command[0]), list(command), {**os.environ, "PYTHONPATH": path})
