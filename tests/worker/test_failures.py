"""A worker describes an exception with what is left: no descriptor, no memory, no working `__str__`."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from chargehand.worker import failures
from chargehand.worker.forked import ForkLink
from chargehand.worker.perform import failure_frame
from chargehand.worker.pulse import Pulse, StackFile

EXHAUSTED = """
import os, resource, sys
from chargehand.worker import failures
from chargehand.worker.forked import ForkLink
reserve = {reserve}
if reserve:
    failures.reserve_descriptor()
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
kept = []
def open_all():
    while True:
        kept.append(open("/dev/null"))
assert "traceback" not in sys.modules
for _ in range(2):
    try:
        open_all()
    except OSError as error:
        print(failures.describe(error))
try:
    open("/dev/null")
except OSError:
    print("still exhausted")
"""


# spec: WK-5
@pytest.mark.parametrize("reserve", [True, False])
def test_an_error_is_described_without_a_free_descriptor(reserve: bool) -> None:
    script = EXHAUSTED.format(reserve=reserve)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("in open_all") == 2
    assert done.stdout.count("OSError: [Errno 24] Too many open files: '/dev/null'") == 2
    assert "still exhausted" in done.stdout, "the reserved descriptor was taken back"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _without_memory(error: BaseException) -> list[str]:
    raise MemoryError


# spec: WK-5
def test_an_error_is_described_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[str] = []

    class Large:
        def __del__(self) -> None:
            freed.append("held")

    def fill() -> None:
        held = Large()
        assert held
        raise MemoryError

    monkeypatch.setattr("traceback.format_exception", _without_memory)
    with pytest.raises(MemoryError) as caught:
        fill()
    text = failures.describe(caught.value)
    assert freed == ["held"], "the variables of the handler's frames are freed"
    assert f'File "{__file__}"' in text
    assert "in fill\n" in text
    assert text.endswith("MemoryError\n")


# spec: WK-5
def test_an_exception_without_a_working_text_is_a_failure_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"RAISED" in failure_frame({"id": "1", "fence": 1}, UnspeakableError(), {})
    monkeypatch.setattr("traceback.format_exception", _without_memory)
    assert b"UnspeakableError: <exception str() failed>" in failure_frame(
        {"id": "1", "fence": 1}, UnspeakableError(), {}
    )


class EnoughError(Exception):
    """Ends the thread's loop."""


class Reporter:
    """A worker that has no memory for its first report."""

    status, paused, memory, pulse, unreported, reported_at = "healthy", False, 0, 0, False, 0.0
    reports = 0

    def report(self) -> None:
        self.reports += 1
        raise MemoryError if self.reports == 1 else EnoughError

    def cancel(self, job_id: str, claim: int) -> None: ...
    def expire(self, job_id: str, claim: int) -> None: ...
    def relay(self, job_id: str, claim: int, how_far: dict[str, Any]) -> None: ...


# spec: SV-6
def test_the_heartbeat_goes_on_after_the_memory_was_used_up() -> None:
    node, sock = socket.socketpair()
    with node, sock, pytest.raises(EnoughError):
        Pulse(Reporter(), sock.fileno(), node.fileno(), ForkLink(), StackFile(node.fileno()), 0.001, 1.0).run()
