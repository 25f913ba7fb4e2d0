"""When the node reads the GPUs: at its start, while a worker uses or needs one, and never in a loop."""

import select

from chargehand.model.fleet.cards import Card, Need, Reading
from chargehand.model.fleet.death import Death
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import Exited, Framed, GpusRead, StopAsked
from chargehand.model.fleet.orders import Verb, carry_out
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy, Terms
from chargehand.node.gpus import EVERY, NEVER, Gpus
from chargehand.processes.nvidia import Tool

WORKER = "worker:tag:0"


def fleet_of(terms: Terms) -> Fleet:
    return Fleet({"tag": terms}, RestartPolicy(), LivenessPolicy(), StartPolicy(), lambda: 0.0)


class Readings(Tool):
    """A fleet, and readings of its GPUs that succeed at a virtual time."""

    def __init__(self, need: Need | None) -> None:
        super().__init__("nvidia-smi")
        self.now, self.asked = 100.0, 0
        self.fleet = fleet_of(Terms(gpus=need, idle_exit=10.0))
        self.gpus = Gpus(self, self.fleet)

    def read(self, allowed: str | None, limit: float = 0.0) -> Reading:
        self.asked += 1
        return Reading(at=self.now, cards=(Card(uuid="GPU-1", index=0, memory=5, free=5),))

    def step(self) -> None:
        """One step of the node: a reading that is due is asked for, and is taken over."""
        if self.now >= self.gpus.due():
            self.gpus.ask(self.now)
        if self.gpus.due() == NEVER:
            assert select.select([self.gpus.ready], [], [], 10)[0]
            for reading in self.gpus.take():
                self.fleet.handle(GpusRead(reading), self.now)


# spec: WP-14
def test_without_a_crew_that_needs_them_the_gpus_are_never_read() -> None:
    world = Readings(None)
    world.fleet.begin(world.now)
    assert world.gpus.due() == NEVER


# spec: WP-14 SV-3
def test_the_gpus_are_read_while_they_are_used_and_not_in_a_loop() -> None:
    world = Readings(Need(count=1))
    world.step()
    world.fleet.begin(world.now)
    assert (world.asked, world.gpus.due()) == (1, world.now + EVERY)
    world.fleet.handle(Framed(WORKER, "healthy"), world.now)
    world.now += EVERY
    world.step()
    assert (world.asked, world.fleet.places[WORKER].gpus[0].memory) == (2, 5)
    carry_out(world.fleet, Verb.STOP, None, world.now)
    world.now += 1
    world.fleet.handle(Exited(component=WORKER, death=Death(exit_code=0), crew_done=0), world.now)
    for _ in range(3):
        world.now += EVERY
        world.step()
        assert (world.asked, world.gpus.due()) == (2, world.now + EVERY), "nobody needs one"
    carry_out(world.fleet, Verb.START, None, world.now)
    assert world.gpus.due() == 0.0, "the last reading is older than the exit"
    world.step()
    assert (world.asked, world.fleet.places[WORKER].status) == (3, "starting")


# spec: WP-14 SV-3
def test_a_worker_that_no_longer_waits_leaves_no_reading_due() -> None:
    world = Readings(Need(count=1))
    world.step()
    world.now += 100
    world.fleet.begin(world.now)
    assert world.gpus.due() == 0.0
    world.fleet.handle(StopAsked(), world.now)
    world.step()
    assert (world.asked, world.gpus.due()) == (2, world.now + EVERY)
