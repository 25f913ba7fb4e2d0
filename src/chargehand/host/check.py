"""Examines the handler of a crew in a process of its own, which is killed with its process group afterwards."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO, Any

LAST_LINES = 3
"""The number of printed lines that are shown if the process reported nothing."""


def examine(plan: dict[str, Any], environment: dict[str, str], limit: float) -> dict[str, Any]:
    """Returns what was found: wrong (a list of sentences), seconds, memory (bytes), set_up_seconds.

    `plan`: handler, discovers, threads, python_path, set_up, and takes and gives as `described`.
    """
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from chargehand.worker.check import main; main({report.fileno()}, {os.getpid()})"],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            pass_fds=[report.fileno()],
            start_new_session=True,
            env={**os.environ, **environment},
        )
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(plan).encode())
                process.stdin.close()
            in_time = _ended(process, limit)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the pid cannot be reused
            process.wait()
        if not in_time:
            what = "import and set_up" if plan["set_up"] else "the import"
            return {"wrong": [f"{what} took longer than {limit:g} s"]}
        report.seek(0)
        with suppress(ValueError):
            return json.loads(report.read())
        return {"wrong": [f"the process {_end(process.returncode)}{_last_lines(printed)}"]}


def _ended(process: "subprocess.Popen[bytes]", limit: float) -> bool:
    """Waits for the exit without reaping the process, so that its pid is not reused."""
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], limit)[0])
    finally:
        os.close(descriptor)


def _end(code: int) -> str:
    return f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _last_lines(printed: IO[bytes]) -> str:
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - 4096))
    lines = printed.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    return f"; its last lines: {' / '.join(lines)}" if lines else ""
