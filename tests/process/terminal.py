"""The command line as another terminal sees it: with pipes, or with a person at the keyboard."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import warm

from paths import python_path

Told = subprocess.CompletedProcess[str]
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
"""Root without the right to open everybody's files: what belongs to another user is refused."""


def environment_of(**environment: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("CHARGEHAND_URL")}
    return {**env, "PYTHONPATH": python_path(), "COLUMNS": "200", **environment}


def chargehand(*words: str, cwd: Path | None = None, stdin: str = "", **environment: str) -> Told:
    return warm.run(list(words), cwd, environment_of(**environment), stdin)


def chargehand_into(stdout: int, *words: str) -> Told:
    """With this descriptor as standard output."""
    return warm.run(list(words), None, environment_of(), "", stdout)


def answered(*words: str, **settings: Any) -> Any:
    done = chargehand(*words, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def chargehand_at_a_keyboard(*words: str, typed: str, cwd: Path | None = None, **environment: str) -> Told:
    """With a terminal as standard input and error; what was printed there comes back as stderr."""
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "chargehand", *words], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
            text=True, cwd=cwd, env=environment_of(**environment), start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, typed.encode())
        out, _ = process.communicate(timeout=60)
        seen = b""
        while True:
            try:
                seen += (more := os.read(ours, 1 << 16))
            except OSError:  # everybody has left the terminal
                break
            if not more:
                break
    finally:
        os.close(ours)
    return Told(words, process.returncode, out, seen.decode())
