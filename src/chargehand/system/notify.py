"""Tells a service manager such as systemd that the service is ready, alive, or about to stop.

Only the commands that are the service call `enable`: an application that hosts a node has its own say. Without a
service manager nothing is sent.
"""

import os
import socket
from collections.abc import MutableMapping

SOCKET, INTERVAL, PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
NAMES = (SOCKET, INTERVAL, PID)
"""The variables by which a service manager names its socket; other processes must not inherit them."""


class Notifier:
    """The socket of the service manager. One that is gone is ignored: the service goes on."""

    def __init__(self, address: str, watchdog: float | None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.every = None if watchdog is None else watchdog / 2
        """Seconds between two signs of life; None: nobody waits for them."""
        self._unsent = ""
        """The state that the full queue of a busy service manager did not take: it is sent with the next report."""

    def ready(self, status: str) -> None:
        """Reports that the start is complete, with a text for people."""
        self._send(f"READY=1\nSTATUS={status}", keep=True)

    def alive(self) -> None:
        """Reports that the service works."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Reports that the service is about to end."""
        self._send("STOPPING=1", keep=True)

    def _send(self, text: str, *, keep: bool = False) -> None:
        full = f"{self._unsent}\n{text}" if self._unsent else text
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(full.encode(), self._address)
        except OSError:  # the manager restarts, or its queue is full
            self._unsent = text if keep else self._unsent
        else:
            self._unsent = ""


_notifier: Notifier | None = None


def enable(environment: MutableMapping[str, str] = os.environ) -> None:
    """Makes this process the one that reports, if a service manager has started it."""
    global _notifier
    address = environment.get(SOCKET, "")
    mine = environment.get(PID) in (None, str(os.getpid()))
    microseconds = environment.get(INTERVAL, "")
    watchdog = int(microseconds) / 1e6 if mine and microseconds.isdigit() and int(microseconds) else None
    _notifier = Notifier(address, watchdog) if address.startswith(("/", "@")) else None


def current() -> Notifier | None:
    """Returns the socket of the service manager; None if nothing is to be reported."""
    return _notifier
