"""`python tests/simulation 10000`: that many histories of one node, and of several, on all cores.

`--seed N` tells one of them in full, `--cluster N` one of several nodes."""

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from clockwork import Broken
from cluster import simulate_cluster
from cluster import tell as tell_cluster
from profiles import PROFILES
from simulator import profile_of, simulate, tell
from stage import Stage

from campaign import Found, cluster_histories, histories
from chargehand import clock


def one(seed: int, name: str | None) -> int:
    """Tell one history in full; of the profile whose turn it is with this seed, or of this one."""
    stage = Stage()
    profile = next((each for each in PROFILES if each.name == name), profile_of(seed))
    try:
        world = simulate(seed, stage, profile)
    except Broken as broken:
        assert stage.world is not None
        trace = str(broken).partition("Traceback")
        sys.stdout.write(f"{tell(stage.world, 10**9)}\n\n{trace[1]}{trace[2]}\n{str(broken).splitlines()[0]}\n")
        return 1
    sys.stdout.write(f"{tell(world, 10**9)}\n\nseed {seed} ({profile.name}): all promises kept\n")
    return 0


def one_of_a_cluster(seed: int) -> int:
    """Tell one history of several nodes in full."""
    world, end = None, f"seed {seed} (cluster): all promises kept"
    try:
        world = simulate_cluster(seed, 10**9)
    except Broken as broken:
        end = str(broken)
    story = "" if world is None else f"{tell_cluster(world, 10**9)}\n\n"
    sys.stdout.write(f"{story}{end}\n")
    return int(world is None)


def many(first: int, count: int, processes: int, kinds: Sequence[Callable[[range], Found]]) -> int:
    """Run them; say what was met."""
    began, size = clock.monotonic(), 50
    seeds = range(first, first + count)
    parts = [seeds[n : n + size] for n in range(0, count, size)]
    tally, seconds = Counter[str](), 0.0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        submitted = [pool.imap_unordered(kind, parts) for kind in kinds]  # all at once: no core waits for another kind
        for found, virtual, broken in chain.from_iterable(submitted):
            tally += found
            seconds += virtual
            if broken is not None:
                pool.terminate()
                sys.stdout.write(f"{broken}\n")
                return 1
    took = clock.monotonic() - began
    for what, times in sorted(tally.items()):
        sys.stdout.write(f"{times:10,}  {what}\n")
    sys.stdout.write(
        f"{count:,} seeds in {took:.1f} s ({count / took:.0f} a second): {seconds / 3600:,.0f} virtual hours, "
        f"{tally['jobs']:,} jobs, {tally['deaths']:,} deaths; all promises kept\n"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=700)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="tell this one in full")
    parser.add_argument("--profile", choices=[each.name for each in PROFILES], help="with --seed: another than its own")
    parser.add_argument("--cluster", type=int, help="tell this one of several nodes in full")
    parser.add_argument("--only-cluster", action="store_true", help="only histories of several nodes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        return one(given.seed, given.profile)
    if given.cluster is not None:
        return one_of_a_cluster(given.cluster)
    kinds = (cluster_histories,) if given.only_cluster else (histories, cluster_histories)
    return many(given.first, given.count, given.processes, kinds)


if __name__ == "__main__":
    sys.exit(main())
