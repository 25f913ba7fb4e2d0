"""What `chargehand work` reports to a service manager such as systemd."""

import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from operating import become, serving
from world import World

from chargehand import clock
from chargehand.system import notify
from chargehand.testing import eventually

CREW = "hand.crew('talk', 'reporting_handlers:Talker', workers=1)"


class Manager:
    """The socket of a service manager, and what was reported to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._sock.setblocking(False)
        self.told: list[str] = []

    def hear(self) -> list[str]:
        while True:
            try:
                self.told += self._sock.recv(4096).decode().split("\n")
            except BlockingIOError:
                return self.told

    def count(self, words: str) -> int:
        return self.hear().count(words)

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def manager(tmp_path: Path) -> Generator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


# spec: CL-1 HP-7
def test_a_service_manager_learns_that_the_node_is_ready_lives_and_stops(world: World, manager: Manager) -> None:
    settings = {notify.SOCKET: str(manager.path), notify.INTERVAL: "400000"}
    with serving(world, CREW, **settings) as served:
        become(served.hand, "healthy")
        eventually(lambda: manager.count("READY=1") == 1)
        assert any(text.startswith("STATUS=node ") for text in manager.told)
        eventually(lambda: manager.count("WATCHDOG=1") >= 3)
        status = served.hand.status()
        assert status is not None
        environment = Path(f"/proc/{status['pid']}/environ").read_text().split("\0")
        assert [each for each in environment if each.startswith(notify.NAMES)] == []
        os.kill(status["pid"], signal.SIGSTOP)
        try:
            before = quiet(manager)
        finally:
            os.kill(status["pid"], signal.SIGCONT)
        eventually(lambda: manager.count("WATCHDOG=1") > before)
        assert "STOPPING=1" not in manager.told
    assert manager.count("STOPPING=1") == 1


def quiet(manager: Manager) -> int:
    """Waits until no sign of life has come for five times the interval. Returns how many there were."""
    last = [manager.count("WATCHDOG=1"), clock.monotonic()]

    def ended() -> bool:
        seen = manager.count("WATCHDOG=1")
        if seen != last[0]:
            last[:] = seen, clock.monotonic()
        return clock.monotonic() - last[1] > 1.0

    eventually(ended)
    return int(last[0])


def test_a_state_that_a_full_queue_refused_is_reported_with_the_next_sign_of_life(manager: Manager) -> None:
    notifier = notify.Notifier(str(manager.path), 1.0)
    for _ in range(1000):  # more than the queue of a socket holds
        notifier.alive()
    notifier.ready("works")
    assert manager.count("READY=1") == 0
    notifier.alive()
    assert manager.hear()[-3:] == ["READY=1", "STATUS=works", "WATCHDOG=1"]
    notifier.alive()
    assert manager.count("READY=1") == 1


def test_only_the_process_that_is_the_service_reports(manager: Manager) -> None:
    def enabled(**variables: str) -> notify.Notifier | None:
        notify.enable(variables)
        try:
            return notify.current()
        finally:
            notify.enable({})

    assert enabled() is None
    assert enabled(NOTIFY_SOCKET="relative") is None
    silent = enabled(NOTIFY_SOCKET="/nowhere/at/all")
    assert silent is not None
    silent.ready("nobody listens")
    assert silent.every is None
    watched = enabled(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()))
    assert watched is not None
    assert watched.every == 1.5
    watched.alive()
    assert manager.hear() == ["WATCHDOG=1"]
    other = enabled(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="3000000", WATCHDOG_PID="1")
    assert other is not None
    assert other.every is None
