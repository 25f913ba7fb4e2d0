"""Histories by name: a scenario's name, `profile:seed`, or `cluster:seed`. Which of them breaks a promise?"""

from collections.abc import Sequence

from clockwork import Broken
from cluster import simulate_cluster
from profiles import PROFILES
from scenarios import SCENARIOS
from simulator import simulate
from stage import Stage


def tell(history: str, stage: Stage) -> None:
    """Tell it. Raises Broken, also if a scenario ends otherwise than it must."""
    if history not in SCENARIOS:
        name, _, seed = history.partition(":")
        if name == "cluster":
            simulate_cluster(int(seed))
            return
        (profile,) = [profile for profile in PROFILES if profile.name == name]
        simulate(int(seed), stage, profile)
        return
    try:
        SCENARIOS[history](stage)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{history}: {error!r}") from error


def first_broken(histories: Sequence[str]) -> list[str]:
    """The first of these that breaks a promise, and which; nothing if none does."""
    stage = Stage()
    try:
        for history in histories:
            try:
                tell(history, stage)
            except Broken as broken:
                return [history, str(broken).splitlines()[0]]
    finally:
        stage.close()
    return []
