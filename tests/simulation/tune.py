"""`python tests/simulation/tune.py [part of a name …]`: for every mutant the seed that shows it at the least cost."""

import sys
from time import process_time

from clockwork import Broken
from mutant import Hunter, Mutant, hunting
from mutants import MUTANTS
from scenarios import SCENARIOS
from stage import Stage
from telling import tell

ENOUGH = 4
"""So many that show it are compared."""


def cost(history: str, stage: Stage) -> float:
    """Seconds that the shipped source needs for it."""
    began = process_time()
    try:
        tell(history, stage)
    except Broken:
        return float("inf")
    return process_time() - began


def cheapest(mutant: Mutant, hunt: Hunter, stage: Stage, costs: dict[str, float]) -> str:
    """The cheapest of the histories that show it."""
    found: dict[str, float] = {}
    for history in mutant.histories()[: max(60, mutant.seeds)]:
        if len(found) < ENOUGH and hunt(mutant, [history]):
            if history not in costs:
                costs[history] = cost(history, stage)
            found[history] = costs[history]
    best = min(found, key=lambda each: found[each], default="nobody sees it")
    return f"{best} ({found.get(best, 0):.3f} s, {len(found)} found)"


def main(parts: list[str]) -> None:
    stage, costs = Stage(), dict[str, float]()
    with hunting() as hunt:
        for mutant in MUTANTS:
            if mutant.profile not in SCENARIOS and (not parts or any(part in mutant.name for part in parts)):
                sys.stdout.write(f"{mutant.name}: {cheapest(mutant, hunt, stage, costs)}\n")
                sys.stdout.flush()
    stage.close()


if __name__ == "__main__":
    main(sys.argv[1:])
