"""What all tests share: nothing that a test started may outlive it."""

import gc
import os
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

import pytest
from hypothesis import settings

from chargehand.processes import proc
from chargehand.testing import eventually

settings.register_profile("here", deadline=None)  # a deadline would be a timed assertion
settings.load_profile("here")

RUN = "CHARGEHAND_TEST_RUN"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run that was put into the background ignores Ctrl+C, and so would all that it starts: tests send it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ[RUN] = f"run-{uuid.uuid4().hex}"  # inherited by every process that a test starts, however far down


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without garbage collection, which takes a third of the time and finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # the modules stay until the end: no later collection has to look at them
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of a failed test the logs of the servers among its fixtures, and what `doctor` finds."""
    report = yield
    if report.failed and report.when == "call":
        for name, fixture in getattr(item, "funcargs", {}).items():
            if isinstance(fixture, Explains):
                report.sections.append((f"fixture {name}", fixture.explain()))
    return report


@runtime_checkable
class Explains(Protocol):
    """A fixture that can tell what helps to understand a failure."""

    def explain(self) -> str:
        """Returns it."""
        ...


def descendants() -> list[int]:
    """Every living process that descends from this test run, wherever it has drifted to."""
    wanted = f"{RUN}={os.environ[RUN]}".encode()
    found: list[int] = []
    for pid in proc.pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if pid == os.getpid() or wanted not in environment:
            continue  # after every test, for every process there is: no more than this
        seen = proc.stat(pid)
        if wanted in environment.split(b"\0") and seen is not None and not seen.dead:
            found.append(pid)
    return found


def describe(pid: int) -> str:
    try:
        return f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode()}"
    except OSError:
        return f"{pid}: gone"


@pytest.fixture(scope="session")
def living() -> Callable[[], list[int]]:
    """For modules whose tests share processes: they look at their own end."""
    return descendants


def end_of_all() -> None:
    """Wait until everything that was started has ended; fail if it does not."""
    if left := descendants():
        eventually(lambda: not descendants(), 15, what=f"processes left behind: {[describe(pid) for pid in left]}")


@pytest.fixture
def nothing_is_left_behind() -> Iterator[None]:
    """For folders whose tests start processes: every test ends its own."""
    yield
    end_of_all()


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind_by_a_module() -> Iterator[None]:
    """For the others: checked once a module, because the check takes longer than most tests."""
    yield
    end_of_all()
