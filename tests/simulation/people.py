"""What people, and accidents, do to a running system: orders, pauses, signals, sleeping machines, ghosts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flow_callers import FlowCallers

from chargehand.model.fleet import orders

if TYPE_CHECKING:
    from stage import World

VERBS = (orders.Verb.START, orders.Verb.STOP, orders.Verb.DRAIN, orders.Verb.RESTART, orders.Verb.RESET)


class People(FlowCallers):
    """See the module. Every deed is drawn by the seed."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._deeds: dict[str, Callable[[], object]] = {
            "enqueue": self.enqueue, "urgent": self._urgent, "poison": self._poison,
            "killer": self._killer, "pause": self._pause, "resume": self._resume,
            "order": self._order, "scale": self._scale, "kill a worker": self._kill_a_worker,
            "sigterm": self._sigterm, "hang while idle": self._hang, "kill the node": world.kill_node,
            "stop the node": self._stop_the_node, "node stands still": self._stand_still,
            "machine sleeps": self._sleep, "store trouble": self._store_trouble, "ghost": self._ghost,
            "retry a job": self._retry, "cancel a job": self._cancel, "epidemic": self._epidemic,
            "items": self._items, "touch": self._touch, "withdraw": self._withdraw, "wake": self._wake,
            "table trouble": self._table_trouble, "turn sick": self._turn_sick, "bad jobs": self._bad_jobs,
            "upstream": self._upstream, "flow": self._begin_flow, "follow": self._follow,
            "cancel a flow": self._cancel_flow, "retry a flow": self._retry_flow, "nothing": lambda: None,
        }  # fmt: skip

    def disturb(self) -> None:
        """One deed."""
        weights = self._world.profile.deeds
        deed = self._chance.choices(list(weights), list(weights.values()))[0]
        self._world.tally[f"deed: {deed}"] += 1
        self._deeds[deed]()

    def _scope(self) -> str:
        """All, a crew, or one worker."""
        world = self._world
        crew = self._crew()
        components = [c for c in (world.places() if world.node else ()) if c.split(":")[1] == crew]
        return self._chance.choice(["*", crew, crew, *components])

    # workers

    def _kill_a_worker(self) -> None:
        living = [w for w in self._world.processes if w.runs]
        if living:
            worker = self._chance.choice(living)
            worker.die(signal=self._chance.choice([9, 11]))

    def _sigterm(self) -> None:
        living = [w for w in self._world.processes if w.runs]
        if living:
            worker = self._chance.choice(living)
            self._world.note(f"somebody sends {worker} a SIGTERM")
            worker.signalled()

    def _hang(self) -> None:
        living = [w for w in self._world.processes if w.runs and w.status == "healthy" and not w.busy]
        if living:
            worker = self._chance.choice(living)
            worker.stuck = True
            if self._chance.random() < 0.4:
                worker.mute = True
                worker.use(0.0)
            self._world.note(f"{worker} hangs though it is idle{' and is silent' if worker.mute else ''}")

    def _turn_sick(self) -> None:
        """A worker becomes unable to do anything, if no other of its crew is."""
        sick = {w.crew for w in self._world.processes if w.sick}
        living = [w for w in self._world.processes if w.runs and w.status == "healthy" and w.crew not in sick]
        if living:
            worker = self._chance.choice(living)
            worker.sick = True
            self._world.note(f"{worker} turns sick")

    def _bad_jobs(self) -> None:
        self._world.fates.bad.update(self.enqueue())

    def _upstream(self) -> None:
        """What all jobs of a crew need does not answer; or does again."""
        self._world.fates.upstream_down ^= {self._crew()}
        self._world.note(f"the upstream is down for {self._world.fates.upstream_down}")

    def _epidemic(self) -> None:
        """From now on the workers of a crew cannot load; or they can again."""
        world, crew = self._world, self._crew()
        world.fates.epidemics ^= {crew}
        if crew in world.fates.epidemics:
            world.note(f"all of {crew} crash")
            for worker in [w for w in world.processes if w.crew == crew and w.runs and not w.busy]:
                worker.die(code=1)

    # orders

    def pause(self, scope: str, for_ms: int | None = None) -> None:
        world = self._world
        with world.stage.people.transaction() as tx:
            tx.fleet.pause(scope, "somebody", None, for_ms)
        world.note(f"pause {scope} for {for_ms}")
        world.oracle.jobs.paused[scope] = float("inf") if for_ms is None else world.now + for_ms / 1000
        self._tell_pauses()
        if for_ms is not None:
            world.after(for_ms / 1000 + 0.001, lambda: self._apply())

    def resume(self, scope: str) -> None:
        world = self._world
        with world.stage.people.transaction() as tx:
            tx.fleet.resume(scope)
        world.note(f"resume {scope}")
        world.oracle.jobs.paused.pop(scope, None)
        self._tell_pauses()

    def _pause(self) -> None:
        self.pause(self._scope(), self._chance.choice([None, None, 1500, 30_000]))

    def _resume(self) -> None:
        paused = list(self._world.oracle.jobs.paused)
        if paused:
            self.resume(self._chance.choice(paused))

    def _tell_pauses(self) -> None:
        """The node learns of it at once, if it was asked to write it, or when it next looks."""
        delay = self._chance.choice([0.0, 0.0, self._chance.uniform(0, 1.0)])
        self._world.after(delay, self._apply)

    def _apply(self) -> None:
        node = self._world.node
        if node is not None:
            node.order(node.apply_pauses)

    def order(self, verb: orders.Verb, scope: str) -> None:
        """An order about present workers."""
        world, node = self._world, self._world.node
        if node is None:
            return

        def carry_out() -> None:
            known = scope == "*" or scope in node.fleet.crews or scope in node.fleet.places
            if node.fleet.stopping or not known:
                return
            world.note(f"order: {verb} {scope}")
            world.tally[f"order: {verb.value}"] += 1
            places = orders.places_of(node.fleet, scope)
            world.oracle.ordered(verb.value, [place.component for place in places])
            actions, answers = orders.carry_out(node.fleet, verb, scope, world.now)
            world.oracle.check(len(answers) == len(places), f"{len(answers)} answers for {len(places)} workers")
            node.act(actions)

        node.order(carry_out)

    def _order(self) -> None:
        self.order(self._chance.choice(VERBS), self._scope())

    def scale(self, crew: str, count: int) -> None:
        world, node = self._world, self._world.node
        if node is None:
            return

        def carry_out() -> None:
            if node.fleet.stopping or any(record.occupied for record in world.oracle.crew(crew)):
                return  # the shipped node does not keep account of the unkillable in places that are no more
            world.note(f"order: scale {crew} to {count}")
            world.counts[crew] = count
            world.oracle.scaled(crew, count)
            actions, _ = orders.scale(node.fleet, crew, count, world.now)
            node.act(actions)

        node.order(carry_out)

    def _scale(self) -> None:
        self.scale(self._crew(), self._chance.choice([0, 1, 1, 2, 2, 3, 4]))

    # accidents

    def _stop_the_node(self) -> None:
        node = self._world.node
        if node is not None:
            node.order(node.stop)

    def _stand_still(self) -> None:
        node = self._world.node
        if node is not None:
            seconds = self._chance.choice([3, 20, 31, 60, 130])
            self._world.note(f"the node is stopped for {seconds} s")
            node.stand_still(seconds)

    def _sleep(self) -> None:
        self._world.sleep(self._chance.choice([5, 40, 400]))

    def _store_trouble(self) -> None:
        self._world.store_fails_until = self._world.now + self._chance.choice([0.5, 5, 30])
        self._world.note(f"the store fails until {self._world.store_fails_until:.3f}")
