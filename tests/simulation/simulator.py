"""One history: trouble for a while, then calm until everything is done. A seed decides everything.

The shipped fleet, ledger, `execute` and SQL, on a virtual clock, with simulated processes, people and accidents. A
history that breaks a promise can be told again, step by step: `python tests/simulation --seed N`.
"""

import traceback

from clockwork import Broken
from profiles import PROFILES, Profile
from stage import Stage, World

from chargehand.model import ledger
from chargehand.model.fleet.orders import Verb
from chargehand.model.search import DiscoveryPolicy

LONGEST_CALM = 3 * 3600


def profile_of(seed: int) -> Profile:
    """Seeds take turns at the profiles."""
    return PROFILES[seed % len(PROFILES)]


def simulate(seed: int, stage: Stage, profile: Profile | None = None) -> World:
    """One history. Raises Broken, with the story so far."""
    world = World(seed, profile or profile_of(seed), stage)
    try:
        world.start_node()
        world.after(1.0, world.watch)
        chance, about = world.chance, world.profile
        for _ in range(chance.randint(about.least_deeds, about.most_deeds)):
            world.folk.disturb()
            world.run(world.now + chance.choice(about.gaps) * chance.uniform(0.5, 1.5))
        settle_down(world)
    except Broken as broken:
        raise Broken(f"seed {seed} ({world.profile.name}) at {world.now:.3f}: {broken}\n{tell(world)}") from broken
    except Exception as error:  # that the shipped code raises is a broken promise, too
        trace = "".join(traceback.format_exception(error))
        raise Broken(f"seed {seed} ({world.profile.name}): {error!r}\n{tell(world)}\n{trace}") from error
    return world


def tell(world: World, last: int = 80) -> str:
    """The story, readable."""
    return "\n".join(f"{when:12.3f}  {text}" for when, text in world.history[-last:])


def settle_down(world: World) -> None:
    """No more trouble; everybody is let go on; everything must end."""
    world.note("calm from here on")
    world.fates.calm = True
    ledger.POLL = max(world.profile.poll, 5.0)
    world.discovery = DiscoveryPolicy(interval=max(world.profile.look_every, 5.0))
    for each in world.node.ledger.searches.values() if world.node is not None else ():
        each.policy = world.discovery
    world.store_fails_until = min(world.store_fails_until, world.now)
    world.application.broken_until = 0.0
    world.fates.epidemics.clear()
    world.fates.upstream_down.clear()
    until = world.now + LONGEST_CALM
    jobs = world.oracle.jobs
    for scope in list(jobs.paused):
        world.folk.resume(scope)
    rounds = 0
    while left := [job for job in jobs.jobs.values() if job.state in ("queued", "running")] or jobs.left():
        if world.now > until:
            raise Broken(f"something is stuck: {left[:5]}")
        if rounds % 10 == 0:
            mend(world)
        rounds += 1
        world.run(world.now + (5 if rounds < 10 else 60))
    world.run(world.now + 2)
    jobs.final(world.fates.poison | world.fates.killers)


def mend(world: World) -> None:
    """What people do so that everything can end."""
    for crew in world.profile.crews:
        if world.node is not None and not world.counts[crew]:
            world.folk.scale(crew, 1)
    world.folk.order(Verb.START, "*")
    world.folk.order(Verb.RESET, "*")
    for job_id in sorted(world.fates.endless):
        if world.oracle.jobs.jobs[job_id].state == "running":
            world.folk.cancel(job_id)
