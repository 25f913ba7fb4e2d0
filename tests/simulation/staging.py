"""What scenarios begin with: a quiet world whose workers are ready, and words for what is seen in it."""

from collections.abc import Callable
from typing import Any

from actors import Worker
from profiles import LIFTED, Profile
from stage import Stage, World

from chargehand.model.fleet.policy import RestartPolicy, Terms
from chargehand.model.job import Claim

QUIET: dict[str, Any] = {
    "jobs": {"done": 1},
    "loads": {"quick": 1},
    "looks": {"quick": 1},
    "hiccups": 0.0,
    "slow_store": 0.0,
    "takes": (0.05,),
}


def begin(stage: Stage, workers: int = 1, *, lifted: bool = False, **about: Any) -> World:
    """A quiet world with one crew, and others if so wished, whose workers are ready."""
    terms = Terms(workers=workers, idle_exit=about.pop("idle_exit", None))
    crews = {"a": terms, **about.pop("others", {})}
    ready_after = about.pop("ready_after", 10.0)
    restart = LIFTED if lifted else RestartPolicy()
    profile = Profile(name="scenario", crews=crews, restart=restart, **{**QUIET, **about})
    world = World(1, profile, stage)
    world.start_node()
    world.after(1.0, world.watch)
    world.run(ready_after)
    for worker in world.processes:
        worker.unkillable_for = 0.001
    return world


def perform_for(world: World, seconds: float, *, mute: bool, rate: float) -> Callable[[Worker, Claim], None]:
    """A job that takes so long, silently or not, and so much CPU time."""

    def perform(worker: Worker, claim: Claim) -> None:
        worker.mute, worker.stuck = mute, True
        worker.use(rate)
        world.after(seconds, lambda: worker.outcome(claim))

    return perform


def now_at(world: World, seconds: float) -> None:
    world.run(world.now + seconds)


def statuses(world: World) -> list[str]:
    return [place.status.value for place in world.places().values()]


def states(world: World) -> list[str]:
    return [job.state for job in world.oracle.jobs.jobs.values()]
