"""Real processes that write tags without a pause, killed by SIGKILL at random moments: no file may be damaged.

python tests/apps/kill_writes.py 1000 [seed]
"""

import os
import random
import select
import shutil
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import tagged

from tonearm.tags import Settings, Unreadable, parse_ontos, read, sweep, undo, write
from tonearm.tags.place import TEMPORARY

SETTINGS = Settings("full", parse_ontos(["mood=MOOD:fill-empty"]))
LONGEST = 0.06
"""Seconds until the kill: a few writes' time."""


@dataclass
class Tally:
    """What was seen over all kills."""

    kills: Counter[str] = field(default_factory=Counter[str])
    damaged: list[str] = field(default_factory=list[str])
    leftovers: int = 0
    swept: int = 0
    found: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True)
class Victim:
    """One file, what it must stay, and the only things that it may say."""

    case: str
    path: Path
    packets: str
    others: dict[str, str]
    states: dict[str, dict[str, tuple[str, ...]]]


def said(path: Path) -> dict[str, tuple[str, ...]]:
    found = read(path)
    assert not isinstance(found, Unreadable), found
    return dict(found.own)


def prepare(folder: Path, case: str) -> Victim:
    (folder / case).mkdir()
    path = tagged.make(folder / case, case, seconds=2)
    packets, others, states = tagged.packets(path), tagged.others(path), {"nothing": said(path)}
    for name, labels in (("some", tagged.SOME), ("other", tagged.OTHER)):
        write(path, labels, SETTINGS, root=path.parent)
        states[name] = said(path)
    undo(path, root=path.parent)
    return Victim(case, path, packets, others, states)


def write_for_ever(path: Path, parent: int) -> None:
    """In the child: one write after the other, until it is killed or has no parent any more."""
    while os.getppid() == parent:
        for labels in (tagged.SOME, tagged.OTHER):
            write(path, labels, SETTINGS, root=path.parent)
        undo(path, root=path.parent)
    os._exit(1)


def kill_once(victim: Victim, moment: float) -> None:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        write_for_ever(victim.path, parent)
    select.select([], [], [], moment)  # the random moment itself; nothing is waited for
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def inspect(victim: Victim, tally: Tally) -> None:
    leftovers = [name for name in os.listdir(victim.path.parent) if TEMPORARY.fullmatch(name)]
    tally.leftovers += len(leftovers)
    tally.swept += len(sweep(victim.path.parent).removed)
    if left := [name for name in os.listdir(victim.path.parent) if name != victim.path.name]:
        tally.damaged.append(f"{victim.case}: left behind: {left}")
    try:
        now = said(victim.path)
        kept = {key: value for key, value in tagged.others(victim.path).items() if "moo" not in key.lower()}
        same = tagged.packets(victim.path) == victim.packets
    except Exception as error:  # whatever it is: the file is damaged
        tally.damaged.append(f"{victim.case}: {error!r}")
        return
    state = next((name for name, own in victim.states.items() if own == now), None)
    if not same or kept != victim.others or state is None:
        tally.damaged.append(f"{victim.case}: audio kept: {same}, other tags kept: {kept == victim.others}, says {now}")
        return
    tally.found[state] += 1


def campaign(kills: int, seed: int) -> Tally:
    moments = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="tonearm-kills-"))
    tally = Tally()
    try:
        victims = [prepare(folder, case) for case in tagged.FIVE]
        for number in range(kills):
            victim = victims[number % len(victims)]
            kill_once(victim, moments.uniform(0, LONGEST))
            tally.kills[victim.case] += 1
            inspect(victim, tally)
    finally:
        shutil.rmtree(folder)
    return tally


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    tally = campaign(kills, seed)
    lines = [
        f"kills: {tally.kills.total()} (seed {seed}): " + ", ".join(f"{case} {n}" for case, n in tally.kills.items()),
        f"in the middle of a write: {tally.leftovers} temporary files left, {tally.swept} swept",
        "files found to say: " + ", ".join(f"{state} {n}" for state, n in sorted(tally.found.items())),
        f"damaged: {len(tally.damaged)}",
        *tally.damaged[:20],
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if tally.damaged else 0


if __name__ == "__main__":
    raise SystemExit(main())
