"""A process that does not die of a SIGKILL: here one that the kernel has frozen, in life one whose driver hangs."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from world import Started, World, gone

from chargehand.doctor.examine import examine
from chargehand.model.job import State
from chargehand.testing import eventually

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def ice() -> Iterator[Path]:
    """A control group that can be frozen."""
    folder = FREEZER / f"chargehand-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"NOT PROVEN HERE: needs root and a freezer control group ({error})")
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    eventually(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_it_keeps_its_job_and_its_place_and_the_rest_goes_on(  # spec: WP-7
    world: World, work: Callable[..., Started], ice: Path
) -> None:
    first = work()
    node = first.ready()["pid"]
    do = first.hand.crew("do", "scripted_handlers:Doer")
    gate = world.gate()
    ref = world.put(do, gate)
    frozen = world.started(ref)
    eventually(lambda: ref.job().worker, what="the store knows who has the job")
    place = ref.job().worker
    (ice / "cgroup.procs").write_text(str(frozen))
    (ice / "freezer.state").write_text("FROZEN")
    eventually(lambda: (ice / "freezer.state").read_text().strip() == "FROZEN")
    for pid in (first.process.pid, node):
        os.kill(pid, signal.SIGSTOP)
    for pid in (first.process.pid, node):
        os.kill(pid, signal.SIGKILL)
    first.end()
    second = work()
    view = eventually(second.view, 30)
    assert view
    assert view["unkillable"] == [{"component": place, "pid": frozen}]
    (occupied,) = [w for w in view["workers"] if w["component"] == place]
    assert occupied["pid"] is None
    assert "unkillable" in occupied["text"]
    assert world.put(do).wait(20) == 1  # the sibling works
    assert ref.job().state is State.RUNNING
    assert not gone(frozen)
    (told,) = [found for found in examine(second.hand).findings if found.cause == "unkillable"]  # cause: unkillable
    assert f"pid {frozen}, formerly {place}, does not exit after SIGKILL" in told.text
    (ice / "freezer.state").write_text("THAWED")
    gate.touch()
    assert ref.wait(20) == 1
    assert gone(frozen)
    assert ref.job().interruptions == 1
    assert second.ready()["unkillable"] == []
    assert len(world.ends(ref)) == 1
