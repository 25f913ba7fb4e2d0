"""The simulated GPUs of a machine: what the processes use of them, and the node's readings, which come late or fail.

It follows the protocol of the shipped `node/gpus.py`; whatever it decides by itself is wrong.
"""

from typing import TYPE_CHECKING

from chargehand.model.fleet.cards import Card, Need, Reading
from chargehand.model.fleet.lifecycle import GpusRead

if TYPE_CHECKING:
    from hands import Node
    from stage import World

EVERY = 5.0
NEVER = float("inf")
SLOWEST = 2.0
"""Most seconds that a reading takes."""


def need_of(world: "World", crew: str) -> Need | None:
    return world.profile.crews[crew].gpus


def used(world: "World", number: int) -> int:
    """What the processes use of a GPU, of whatever node: all of it for one that has it for itself."""
    sizes = world.profile.gpus
    found = 0
    for worker in world.processes:
        need = need_of(world, worker.crew)
        if need is not None and f"GPU-{number}" in worker.gpus and worker.status != "starting":
            found += sizes[number] if need.memory is None else need.memory
    return min(found, sizes[number])


class Readings:
    """The readings of one node."""

    def __init__(self, node: "Node") -> None:
        self._node, self._world = node, node.world
        self._look_at = 0.0
        self._first, self._busy, self._failed = True, False, False

    def due(self) -> float:
        """Returns when the next reading is to be asked for."""
        if self._busy or not self._world.profile.gpus:
            return NEVER
        return 0.0 if self._node.fleet.gpus_unread else self._look_at

    def step(self) -> None:
        """Ask for a reading if one is due."""
        now = self._world.now
        if now < self.due():
            return
        self._look_at = now + EVERY
        if not self._first and not self._node.fleet.gpus_unread and not self._node.fleet.uses_gpus():
            return
        self._first, self._busy = False, True
        reading, chance = self._read(), self._world.chance
        self._world.after(chance.choice([0.05, 0.2, SLOWEST]), lambda: self._node.order(lambda: self._take(reading)))

    def _take(self, reading: Reading) -> None:
        self._busy = False
        self._node.tell(GpusRead(reading))

    def _read(self) -> Reading:
        world = self._world
        self._failed = not self._failed and world.chance.random() < 0.2
        if self._failed:
            world.tally["GPUs: not read"] += 1
            return Reading(at=world.now, why="the driver does not answer")
        cards = [
            Card(uuid=f"GPU-{number}", index=number, name="sim", memory=size, free=size - used(world, number))
            for number, size in enumerate(world.profile.gpus)
        ]
        return Reading(at=world.now, cards=tuple(cards))
