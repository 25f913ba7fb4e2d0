"""Which readings of the CPU time show work, and which show threads that only wait for the interpreter."""

import pytest

from chargehand.model.fleet.usage import ThreadUsage, Usage, cores, shows_work

MAIN, NATIVE = 1, 2
SECONDS = 15.0


def reading(
    at: float,
    main: float = 0.0,
    *,
    asking: float = 0.0,
    waiting: int = 0,
    native: float = 0.0,
    ended: float = 0.0,
    children: float = 0.0,
) -> Usage:
    """A reading after `at` seconds; each number is a share of a core. `waiting` threads ask for the interpreter."""
    threads = {MAIN: ThreadUsage(7 + main * at), NATIVE: ThreadUsage(3 + native * at)}
    threads |= {100 + number: ThreadUsage(1 + asking * at, waits=True) for number in range(waiting)}
    return Usage(threads=threads, own=asking * at, ended=2 + ended * at, children=5 + children * at)


def worked(**shares: float) -> bool:
    return shows_work(reading(0, **shares), reading(SECONDS, **shares), SECONDS)  # type: ignore[arg-type]


# spec: SV-6
def test_a_worker_that_sleeps_in_c_and_holds_the_interpreter_shows_no_work() -> None:
    assert not worked()
    assert not worked(asking=0.004), "its pulse waits"
    assert not worked(asking=0.004, waiting=1), "so does a thread of the handler"
    assert not worked(asking=0.004, waiting=200), "each is judged alone: together they use most of a core"


# spec: SV-6
def test_a_slow_machine_is_measured_by_the_pulse() -> None:
    assert not worked(asking=0.03, waiting=5)


# spec: SV-6
@pytest.mark.parametrize("who", ["main", "native", "ended", "children"])
@pytest.mark.parametrize("share", [0.005, 0.02, 1.0, 8.0])
def test_work_is_seen_whoever_does_it(who: str, share: float) -> None:
    assert worked(**{who: share})
    assert worked(**{who: share}, asking=0.004, waiting=20)


# spec: SV-6
def test_a_thread_that_reads_a_slow_disk_works() -> None:
    """It uses next to nothing, but it does not sleep as one does that waits for the interpreter."""
    assert worked(main=0.0005, asking=0.004, waiting=3)


# spec: SV-6
def test_a_thread_that_waits_but_used_much_has_worked() -> None:
    before = Usage(threads={MAIN: ThreadUsage(1.0, waits=True)})
    assert not shows_work(before, Usage(threads={MAIN: ThreadUsage(1.14, waits=True)}), SECONDS)
    assert shows_work(before, Usage(threads={MAIN: ThreadUsage(1.16, waits=True)}), SECONDS)


# spec: SV-6
def test_a_new_thread_is_seen() -> None:
    before = Usage(threads={MAIN: ThreadUsage(1.0)})
    assert shows_work(before, Usage(threads={MAIN: ThreadUsage(1.0), NATIVE: ThreadUsage(0.2)}), SECONDS)
    assert not shows_work(before, Usage(threads={MAIN: ThreadUsage(1.0), NATIVE: ThreadUsage(0.0001)}), SECONDS)


# spec: SV-6
def test_a_child_that_ended_without_being_waited_for_has_worked() -> None:
    """Its time is gone with it."""
    assert shows_work(Usage(threads={}, children=5.0), Usage(threads={}, children=1.0), SECONDS)


# spec: SV-6
def test_the_rounding_of_the_kernel_is_no_work() -> None:
    assert not shows_work(Usage(threads={}, ended=1.0), Usage(threads={}, ended=1.02), SECONDS)
    assert not shows_work(Usage(threads={}, ended=1.02), Usage(threads={}, ended=1.0), SECONDS)


# spec: SV-7
def test_the_total_is_all_but_the_pulse() -> None:
    assert (
        Usage(threads={MAIN: ThreadUsage(1.0), NATIVE: ThreadUsage(2.0)}, own=9.0, ended=4.0, children=8.0).total == 15
    )


def test_cores_that_a_worker_and_its_children_use() -> None:  # spec: CL-6
    before, after = reading(0, main=0.5, children=1.0), reading(2, main=0.5, children=1.0)
    assert cores(before, after, 2) == 1.5
    assert cores(after, before, 2) == 0, "a thread that ended between two readings is no negative use"
