"""Network namespaces: nodes on networks of their own, whose lines to the server can be cut."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Self

NETWORK = "10.99.77"


class Network:
    """Some namespaces, each with a line to this machine. They exist while the block runs."""

    def __init__(self, count: int) -> None:
        self._lines = [(f"{NETWORK}.{4 * nr + 1}", f"{NETWORK}.{4 * nr + 2}") for nr in range(count)]
        """For each namespace: the address of this machine, and that of the namespace."""
        self.addresses = ",".join(here for here, _ in self._lines)
        """The addresses of this machine, for a server."""
        self.access = tuple(f"host all all {there}/32 trust" for _, there in self._lines)
        """Lines for pg_hba.conf."""

    def impossible(self) -> str | None:
        """Returns why this machine cannot have namespaces; None if it can."""
        if os.geteuid() != 0:
            return "only root can make network namespaces"
        missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
        return f"these programs are missing: {missing}" if missing else None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for number, (here, there) in enumerate(self._lines):
                space, line = _space(number), f"ch{os.getpid()}-{number}"
                _ip("netns", "add", space)
                stack.callback(_ip, "netns", "delete", space)
                _ip("link", "add", line, "type", "veth", "peer", "name", "v", "netns", space)
                stack.callback(_ip, "link", "delete", line)
                _ip("addr", "add", f"{here}/30", "dev", line)
                _ip("link", "set", line, "up")
                _ip("-n", space, "addr", "add", f"{there}/30", "dev", "v")
                _ip("-n", space, "link", "set", "v", "up")
                _ip("-n", space, "link", "set", "lo", "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def place(self, number: int) -> tuple[tuple[str, ...], str]:
        """Returns the command that runs a program in a namespace, and the URL of the server there."""
        here, _ = self._lines[number]
        return ("nsenter", f"--net=/run/netns/{_space(number)}"), f"postgresql://postgres@{here}/postgres"

    @contextmanager
    def cut(self, number: int) -> Generator[None]:
        """Drops all packets of a namespace in both directions, without a word to either side."""
        here, there = self._lines[number]
        routes = (("route", "{}", "blackhole", there), ("-n", _space(number), "route", "{}", "blackhole", here))
        for words in routes:
            _ip(*(word.format("add") for word in words))
        try:
            yield
        finally:
            for words in routes:
                _ip(*(word.format("delete") for word in words))


def _space(number: int) -> str:
    return f"chaos{os.getpid()}-{number}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
