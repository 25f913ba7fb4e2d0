"""Declares the crews and their sizes for this machine. Names the handlers without importing them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chargehand import Chargehand, Crew
from tonearm.handlers import Count, Look
from tonearm.library import WORK, home

LISTENING = 350 << 20
"""Bytes of memory that a worker needs during analysis."""
MOST_LISTENERS = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """CPU cores and memory of a machine."""

    cores: int
    memory: int

    @classmethod
    def here(cls) -> "Machine":
        """Returns the values of the current machine."""
        return cls(len(os.sched_getaffinity(0)), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def listeners(self) -> int:
        """Returns one analysis worker per core, as far as half of the memory allows."""
        return max(1, min(self.cores, self.memory // 2 // LISTENING, MOST_LISTENERS))

    def scanners(self) -> int:
        """Returns the number of scanners, which mostly wait for the disk. Each scans one folder."""
        return max(1, min(self.cores // 2, 10))

    def calibrators(self) -> int:
        """Returns the number of calibration workers, which run rarely."""
        return max(1, min(self.cores // 4, 5))


@dataclass(frozen=True, slots=True)
class Crews:
    """Tonearm's crews on one store."""

    hand: Chargehand
    library: Crew[Look, Any]
    tag: Crew[Any, Any]
    calibration: Crew[Count, Any]
    write: Crew[Any, Any]
    likeness: Crew[Any, Any]


def build(
    where: Path | None = None,
    *,
    workers: int | None = None,
    machine: Machine | None = None,
    tagger: str = "tonearm.tagger:Tagger",
    nice: int = 10,
    idle_exit: float = 60,
    environment: Mapping[str, str] | None = None,
) -> Crews:
    """Declares the crews without starting them."""
    machine = machine or Machine.here()
    place = home(where)
    place.mkdir(parents=True, exist_ok=True)
    hand = Chargehand(place / WORK, node="tonearm", folder=place)
    env = {"TONEARM_HOME": str(place), "TONEARM_NICE": str(nice), **(environment or {})}
    count = machine.listeners() if workers is None else workers
    return Crews(
        hand,
        library=hand.crew(
            "library", "tonearm.handlers:Scanner", takes=Look, workers=machine.scanners(), environment=env,
            idle_exit=idle_exit, timeout=None,
        ),
        tag=hand.crew(
            "tag", tagger, default=True, discovers=True, workers=count,
            environment=env, idle_exit=2 * idle_exit, recycle_memory="1 GiB", memory=LISTENING, timeout=1800, threads=1,
        ),
        calibration=hand.crew(
            "calibration", "tonearm.handlers:Calibrator", takes=Count, workers=machine.calibrators(), environment=env,
            idle_exit=idle_exit,
        ),
        write=hand.crew(
            "write", "tonearm.handlers:Writer", discovers=True, workers=1, environment=env, idle_exit=idle_exit,
        ),
        likeness=hand.crew("likeness", "tonearm.likeness:Finder", workers=1, environment=env, idle_exit=idle_exit),
    )  # fmt: skip
