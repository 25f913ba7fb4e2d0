"""The servers of the systems that need one: Redis from Debian's packages, PostgreSQL from PyPI; both on loopback."""

import os
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.environment import Unavailable
from bench.scene import PATIENCE, ROOT
from chargehand.testing import eventually

_REDIS = ROOT / ".venvs" / "redis"
_PACKAGES = ("redis-tools", "libjemalloc2", "liblzf1")
"""Unpacked instead of installed: installing the package redis-server would start a service."""


@contextmanager
def redis(folder: Path) -> Generator[str]:
    """Runs a Redis with its default settings, and returns its URL. Raises Unavailable."""
    program, libraries = _redis_program()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    # The server and its tools are one program, which looks at the name it is called by.
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--logfile", "redis.log"],
        executable=program, env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip

    def up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(up, PATIENCE, what="Redis is up")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


def _redis_program() -> tuple[str, str]:
    """Returns the server's program, and where its libraries are."""
    if (installed := shutil.which("redis-server")) is not None:
        return installed, os.environ.get("LD_LIBRARY_PATH", "")
    program = _REDIS / "usr" / "bin" / "redis-check-rdb"
    if not program.exists():
        _REDIS.mkdir(parents=True, exist_ok=True)
        download = f"apt-get -qq download {' '.join(_PACKAGES)}"
        script = f"cd '{_REDIS}' && ({download} || (apt-get -qq update && {download}))"
        script += " && for file in *.deb; do dpkg -x $file .; done"
        made = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        if made.returncode != 0 or not program.exists():
            raise Unavailable(f"no Redis: install Debian's redis-server ({made.stderr.strip()[-200:]})")
    (libraries,) = {str(found.parent) for found in _REDIS.rglob("libjemalloc.so.2")}
    return str(program), libraries
