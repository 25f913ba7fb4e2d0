"""A host in a process that does nothing else: it waits, in little memory, and is what `chargehand work` becomes.

The settings are read, and the application is imported, in a process that is larger by their modules. It is replaced
(exec) by one that knows only the node to start: pid, terminal, environment and standard streams stay. `Traces` tells
whether the application would miss its process.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from chargehand import log
from chargehand.host.brief import Brief, from_bytes, to_bytes
from chargehand.host.host import Host
from chargehand.system import notify

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Traces(NamedTuple):
    """What of an application lives in its process, and would end with it, beside its modules."""

    threads: int
    children: str
    at_exit: int
    handlers: tuple[Any, ...]
    """The handler of each signal."""
    files: frozenset[str]

    @classmethod
    def now(cls) -> "Traces":
        """Returns what there is now."""
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = file.read()
        numbers = sorted(signal.valid_signals())
        return cls(
            threading.active_count(),
            children,
            atexit._ncallbacks(),  # pyright: ignore[reportPrivateUsage]
            tuple(signal.getsignal(number) for number in numbers),
            frozenset(filter(None, (_opened(number) for number in os.listdir("/proc/self/fd")))),
        )

    def left(self, before: "Traces") -> str | None:
        """Returns what was added since `before`, in words; None if nothing was."""
        words = {
            "threads": "threads",
            "children": "processes",
            "at_exit": "functions to be called at the exit",
            "handlers": "signal handlers",
            "files": "open files",
        }
        found = [word for name, word in words.items() if getattr(self, name) != getattr(before, name)]
        return ", ".join(found) or None


def _opened(number: str) -> str | None:
    """Returns what a descriptor is open on; None if it is closed meanwhile, as the one that lists them is."""
    try:
        return f"{number} {os.readlink(f'/proc/self/fd/{number}')}"
    except OSError:
        return None


def become(brief: Brief, level: str, style: str, words: Sequence[str]) -> NoReturn:
    """Replaces this process by a host that waits. Raises OSError if that is not possible.

    `words` are shown with the process, as its command line.
    """
    memory = os.memfd_create("chargehand-host")  # closed by an exec, unless it is inherited
    try:
        data = to_bytes(brief)
        with open(os.dup(memory), "wb") as file:
            file.write(data)
        os.lseek(memory, 0, os.SEEK_SET)
        os.set_inheritable(memory, True)
        # A signal that arrives from now on is delivered when the next process can handle it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            code = f"from chargehand.host.alone import main; main({memory}, {level!r}, {style!r})"
            os.execv(sys.executable, [sys.executable, "-c", code, *words])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        os.close(memory)


def main(memory: int, level: str, style: str) -> NoReturn:
    """Runs the host that `become` has described in this file."""
    with open(memory, "rb") as file:
        brief = from_bytes(file.read())
    log.configure(level, style=style)
    notify.enable()

    def start() -> Host:
        host = Host(brief, give_up=True)
        host.start()
        return host

    sys.exit(run(start))


def run(start: Callable[[], Host]) -> int:
    """Starts a host and waits until it has ended: SIGTERM and SIGINT stop it, the second of them at once.

    Returns the exit status; the reason of a node that could not start is written to standard error.
    """
    signals: list[int] = []
    hosts: list[Host] = []

    def receive(number: int, _: object) -> None:
        signals.append(number)
        for host in hosts:
            end(host)

    def end(host: Host) -> None:
        if len(signals) > 1:
            host.kill()
            return
        log.info("stopping; a second signal exits at once", signal=signal.Signals(signals[0]).name)
        host.begin_stop()

    for number in _SIGNALS:
        signal.signal(number, receive)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    host = start()
    hosts.append(host)
    if signals:  # received before the host existed
        end(host)
    host.ended.wait()
    if host.failed is None:
        return 0
    sys.stderr.write(f"chargehand: {log.escaped(host.failed.why)}\n")
    return host.failed.code
