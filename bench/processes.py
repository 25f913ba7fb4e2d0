"""What the kernel says of processes: CPU time to the nanosecond, memory by fair share."""

import os
from collections.abc import Iterable
from pathlib import Path


def cpu(pid: int) -> tuple[float, float]:
    """CPU seconds so far of a process's main thread, and of all its others together.

    From schedstat: the ticks in /proc/<pid>/stat are sampled, and miss whoever sleeps again before the next one.
    """
    main = others = 0.0
    for task in os.listdir(f"/proc/{pid}/task"):
        used = int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) / 1e9
        if int(task) == pid:
            main += used
        else:
            others += used
    return main, others


def pss(pids: Iterable[int]) -> float:
    """MiB of memory of these processes; pages that several have are divided among them."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024
