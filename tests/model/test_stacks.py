"""The stacks of a running worker on request: when a dump is complete, when a signal is safe, why there is no dump."""

import pytest
from fleet_world import ONE, TWO, World

from chargehand.errors import ConfigurationError, UnknownCrew
from chargehand.model.fleet.orders import Verb, carry_out
from chargehand.model.fleet.policy import Terms
from chargehand.model.fleet.stacks import (
    LONGEST,
    SignalState,
    StackCode,
    Written,
    is_complete,
    why_incomplete,
    why_no_dump,
    why_no_signal,
    why_still,
    worker_of,
    written,
)
from chargehand.model.fleet.usage import ThreadUsage, Usage

MAIN, SECOND = 1, 2
IDLE = SignalState(state="S", caught=True, pending=False)


# which worker


@pytest.mark.parametrize("name", ["worker:tag:1", "tag:1"])
def test_a_worker_is_named_as_in_orders(name: str) -> None:  # spec: CL-6
    assert worker_of(World(2).fleet, name).component == TWO


@pytest.mark.parametrize("name", ["tag", "*", ""])
def test_one_worker_is_named(name: str) -> None:  # spec: CL-6
    with pytest.raises(ConfigurationError, match=f"not the name of one worker; there are: {ONE}, {TWO}"):
        worker_of(World(2).fleet, name)
    with pytest.raises(UnknownCrew):
        worker_of(World(2).fleet, "tag:2")


# spec: CL-6
def test_a_worker_without_a_process_is_not_asked() -> None:
    world = World(crews={"tag": Terms(workers=1, idle_exit=5.0)})
    world.ready()
    assert why_no_dump(world.place) is None
    carry_out(world.fleet, Verb.STOP, ONE, world.now)
    assert why_no_dump(world.place) is None, "it is stopping, and may be stuck"
    world.exit(code=0)
    assert why_no_dump(world.place) == (StackCode.NO_PROCESS, "has no process: it is stopped")


# spec: CL-6 SV-6
def test_a_worker_that_will_be_killed_has_been_asked_already() -> None:
    world = World()
    world.ready()
    world.work("j1", timeout=1.0)
    world.after(1.0)
    found = why_no_dump(world.place)
    assert found is not None
    assert found[0] is StackCode.EXITED
    assert "job timeout" in found[1]


# what was written


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", Written()),
        (b"Thread 1\n", Written("Thread 1")),
        (b"\0", Written()),
        (b"\0Thread 1\n", Written("Thread 1")),  # on the signal: C code took the interpreter from the pulse thread
        (b"\0Thread 1\n\0", Written("", "Thread 1")),
        (b"Thread 1\n\0Thread 2\n", Written("Thread 1")),
        (b"Thread 1\n\0Thread 2\n\0", Written("Thread 1", "Thread 2")),
        (b"\0Thread 1\n\0\0Thread 2\n\0", Written("", "Thread 1")),
        (b"\0Thread 1\n\0\0Thread 2\n", Written("Thread 2", "Thread 1")),
        (b"read 1\n\0\0Thread 2\n\0", Written("read 1", "Thread 2")),  # the file was emptied during the first dump
        (b"\0\xff\n\0", Written("", "\ufffd")),
        (b"\0y" + b"x" * LONGEST + b"\0", Written("", "x" * LONGEST)),  # the main thread comes last
    ],
)
def test_dumps_are_told_apart(data: bytes, found: Written) -> None:  # spec: CL-6
    assert written(data.split(b"\0")) == found


def seen(
    state: str = "S", *, caught: bool = True, pending: bool = False, blocking: tuple[int, ...] = ()
) -> SignalState:
    return SignalState(state=state, caught=caught, pending=pending, blocking=blocking)


# spec: CL-6
def test_a_dump_is_complete_when_the_handler_of_the_signal_has_returned() -> None:
    dump = Written("Thread 1")
    assert is_complete(dump, IDLE, seen("R"))
    assert is_complete(dump, seen(blocking=(7,)), seen(blocking=(7,))), "a thread that always blocks it"
    assert is_complete(dump, seen(blocking=(7,)), seen()), "that thread has ended"
    assert not is_complete(dump, IDLE, seen(blocking=(MAIN,))), "the handler runs"
    assert not is_complete(dump, seen(blocking=(7,)), seen(blocking=(7, MAIN)))
    assert not is_complete(dump, IDLE, seen(pending=True)), "the dump is of an earlier signal"
    assert not is_complete(Written(), IDLE, seen()), "the signal is on its way, or somebody else's"


@pytest.mark.parametrize(
    ("found", "now", "code", "word"),
    [
        (Written(), seen(), StackCode.NO_HANDLER, "replaced the handler"),
        (Written(), seen(pending=True), StackCode.NOT_DELIVERED, "within 1 s"),
        (Written(), seen("D", pending=True), StackCode.NOT_DELIVERED, "in the kernel"),
        (Written("Thread 1"), seen(blocking=(MAIN,)), StackCode.NOT_DELIVERED, "within 1 s"),
    ],
)
def test_a_signal_that_brings_no_dump(found: Written, now: SignalState, code: StackCode, word: str) -> None:
    told = why_incomplete(found, now)  # spec: CL-6
    assert told[0] is code
    assert word in told[1]


# spec: CL-6
def test_a_suspended_process_is_not_waited_for() -> None:
    assert [why and why[0] for why in map(why_still, map(seen, "TtSRD"))] == [StackCode.SUSPENDED] * 2 + [None] * 3
    assert [why and why[0] for why in map(why_still, map(seen, "ZX"))] == [StackCode.EXITED] * 2


# when the signal is sent


def reading(at: float, main: float = 0.0, second: float = 0.0, own: float = 0.004) -> Usage:
    """A reading after `at` seconds; each number is a share of a core."""
    threads = {MAIN: ThreadUsage(7 + main * at), SECOND: ThreadUsage(3 + second * at)}
    return Usage(threads=threads, own=own * at)


def refused(now: SignalState = IDLE, *, ready: bool = True, has_file: bool = True, **shares: float) -> StackCode | None:
    why = why_no_signal(now, reading(0, **shares), reading(1, **shares), 1.0, ready=ready, has_file=has_file)
    return why and why[0]


# spec: CL-6
def test_the_signal_is_sent_only_if_one_thread_at_most_can_run_python_code() -> None:
    assert refused() is None, "C code that holds the interpreter sleeps"
    assert refused(main=1.0) is None
    assert refused(main=1.0, second=0.004) is None, "the second waits for the interpreter"
    assert refused(second=1.0) is None
    assert refused(main=0.5, second=0.5) is StackCode.BUSY
    assert refused(main=0.02, second=0.02) is StackCode.BUSY
    assert refused(main=1.0, second=0.03, own=0.02) is None, "a slow machine is measured by the pulse"


# spec: CL-6
def test_a_thread_that_began_meanwhile_counts() -> None:
    before, after = Usage(threads={MAIN: ThreadUsage(7.0)}), reading(1, main=1.0)
    why = why_no_signal(IDLE, before, after, 1.0, ready=True, has_file=True)
    assert why is not None
    assert why[0] is StackCode.BUSY


# spec: CL-6
def test_without_a_handler_of_the_signal_it_would_end_the_worker() -> None:
    assert refused(seen(caught=False)) is StackCode.NO_HANDLER
    assert refused(seen(caught=False), ready=False) is StackCode.STARTING


# spec: CL-6
def test_without_the_file_for_stacks_the_signal_would_write_into_another() -> None:
    assert refused(has_file=False) is StackCode.NO_HANDLER


@pytest.mark.parametrize("readings", [(None, reading(1)), (reading(0), None)])
def test_what_cannot_be_read_is_not_safe(readings: tuple[Usage | None, Usage | None]) -> None:  # spec: CL-6
    why = why_no_signal(IDLE, *readings, 1.0, ready=True, has_file=True)
    assert why is not None
    assert why[0] is StackCode.BUSY
