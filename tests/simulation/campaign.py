"""Many histories in one process: what was met in them, and the first that broke a promise."""

import gc
from collections import Counter
from collections.abc import Iterable

from clockwork import Broken
from simulator import simulate
from stage import Stage

Found = tuple[Counter[str], float, str | None]


def histories(seeds: Iterable[int]) -> Found:
    """What happened in these, in how many virtual seconds; and the first that broke a promise."""
    stage, tally, seconds = Stage(), Counter[str](), 0.0
    gc.disable()  # worlds are full of circles, and looking for them all the time costs a tenth
    try:
        for seed in seeds:
            try:
                world = simulate(seed, stage)
            except Broken as broken:
                return tally, seconds, str(broken)
            tally += world.tally
            tally[f"profile: {world.profile.name}"] += 1
            seconds += world.now
    finally:
        stage.close()
        gc.enable()
        gc.collect()
    return tally, seconds, None
