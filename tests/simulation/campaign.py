"""Many histories in one process: what was met in them, and the first that broke a promise."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable

from clockwork import Broken
from cluster import simulate_cluster
from simulator import simulate
from stage import Stage

Found = tuple[Counter[str], float, str | None]


def histories(seeds: Iterable[int]) -> Found:
    """What happened in these, in how many virtual seconds; and the first that broke a promise."""
    stage = Stage()

    def one(seed: int) -> tuple[Counter[str], float]:
        world = simulate(seed, stage)
        return world.tally + Counter({f"profile: {world.profile.name}": 1}), world.now

    try:
        return _all(one, seeds)
    finally:
        stage.close()


def cluster_histories(seeds: Iterable[int]) -> Found:
    """The same for histories of several nodes."""

    def one(seed: int) -> tuple[Counter[str], float]:
        world = simulate_cluster(seed)
        return world.tally + Counter({"profile: cluster": 1}), world.now

    return _all(one, seeds)


def _all(one: Callable[[int], tuple[Counter[str], float]], seeds: Iterable[int]) -> Found:
    tally, seconds = Counter[str](), 0.0
    gc.disable()  # worlds are full of circles, and looking for them all the time costs a tenth
    try:
        for seed in seeds:
            try:
                met, virtual = one(seed)
            except Broken as broken:
                return tally, seconds, str(broken)
            tally += met
            seconds += virtual
    finally:
        gc.enable()
        gc.collect()
    return tally, seconds, None
