"""Measure Chargehand beside other systems: `python -m bench.peers [--part] [--rounds N] [NAME ...]`.

Each system is installed into an environment of its own, and runs on this machine alone, on loopback. Chargehand is
measured first, in the same way, on both stores. The table has ratios in front; the results are stored in
bench/peers/latest.json, and published in docs/peers.md with their plots in docs/images.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.environment import Unavailable
from bench.peers import measures, table
from bench.peers.catalogue import PEERS, Peer
from bench.peers.measures import Figures, Limits
from bench.peers.servers import redis
from bench.peers.system import System
from bench.postgres.server import Machine, serving
from bench.scene import folder
from chargehand import __version__

LATEST = Path(__file__).with_name("latest.json")


@contextmanager
def _system(peer: Peer, machine: Machine) -> Generator[System]:
    """Starts the server of a system, empty, and its client."""
    with folder() as place:
        if peer.server == "redis":
            with redis(place) as url:
                yield from _running(peer, url, place)
        elif peer.server == "postgres":
            machine.rows("DROP DATABASE IF EXISTS peer WITH (FORCE)")
            machine.rows("CREATE DATABASE peer")
            yield from _running(peer, machine.url("peer"), place)
        else:
            yield from _running(peer, str(place / "peer.db"), place)


def _running(peer: Peer, url: str, place: Path) -> Generator[System]:
    system = System(peer, url, place)
    try:
        yield system
    finally:
        system.close()


def _measure(peer: Peer, machine: Machine, limits: Limits) -> Figures:
    version = __version__ if not peer.packages else peer.packages[0].partition("==")[2]
    figures = Figures(peer.name, version, peer.settings)

    def part(name: str, *steps: Callable[[System], None], mode: str | None = "safe") -> None:
        print(f"  {peer.name}: {name}", flush=True)
        try:
            with _system(peer, machine) as system:
                if mode is not None:
                    system.start(mode)
                    system.ready()
                for step in steps:
                    step(system)
        except (TimeoutError, AssertionError, RuntimeError, subprocess.SubprocessError) as error:
            traceback.print_exc()
            figures.notes.append(f"{name}: {str(error).splitlines()[0]}")

    part("throughput", lambda system: measures.throughput(system, figures, limits), mode=None)
    part(
        "latency, idle, recovery",
        lambda system: measures.latency(system, figures),
        lambda system: measures.resting(system, figures),
        lambda system: measures.recovery(system, figures, limits),
    )
    part("broken process", lambda system: measures.fragile(system, figures, limits))
    return figures


def _selected(words: Sequence[str]) -> list[Peer]:
    """Returns Chargehand, and the systems whose names contain one of the words (no words: all)."""
    lowered = [word.lower() for word in words]
    return [
        peer for peer in PEERS
        if not peer.packages or not lowered or any(word in peer.name.lower() for word in lowered)
    ]  # fmt: skip


def main() -> int:
    """Measures and prints. The exit status tells whether every system was measured."""
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    parser.add_argument("--part", action="store_true", help="wait 15 s instead of 180 s for a killed job")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is measured; medians are shown")
    parser.add_argument(
        "--keep", action="store_true", help="store the results of a part even over those of a whole run"
    )
    parser.add_argument("--list", action="store_true", help="only list the systems")
    parser.add_argument(
        "--draw", action="store_true", help="only print the stored results, and write and draw them again"
    )
    parser.add_argument("names", nargs="*", help="only systems whose name contains one of these words")
    options = parser.parse_args()
    peers = _selected(options.names)
    if options.list:
        print(
            "\n".join(f"{peer.name:24} {' '.join(peer.packages) or 'this project'}; {peer.settings}" for peer in peers)
        )
        return 0
    if options.draw:
        stored = json.loads(LATEST.read_text())
        table.show(stored)
        table.publish(stored)
        return 0
    if all(not peer.packages for peer in peers):
        parser.error("no other system has this name; --list shows all")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for name in ("CHARGEHAND_URL", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    limits = Limits(recovery=15.0 if options.part else 180.0)
    rounds: dict[str, list[Figures]] = {}
    missing: list[str] = []
    began = time.monotonic()
    with serving() as machine:
        for _ in range(options.rounds):
            for peer in peers:
                try:
                    rounds.setdefault(peer.name, []).append(_measure(peer, machine, limits))
                except Unavailable as error:
                    missing.append(f"{peer.name}: NOT MEASURED: {error}")
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{machine_words()}, Python {platform.python_version()}",
        "limit_s": limits.recovery,
        "rounds": options.rounds,
        "systems": [measures.merged(each).as_json() for each in rounds.values() if each],
    }
    table.show(results)
    print("\n".join(missing))
    print(f"measured in {(time.monotonic() - began) / 60:.1f} minutes")
    if options.names or missing:
        print(f"{LATEST.name} was not changed: not everything was measured")
    elif options.part and not options.keep and stored_limit() > limits.recovery:
        print(f"{LATEST.name} was not changed: it has the results of a whole run (--keep replaces them)")
    else:
        LATEST.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        table.publish(results)
        print("written: bench/peers/latest.json, docs/peers.md and docs/images/peers-*.png")
    return 1 if missing else 0


def machine_words() -> str:
    """Returns the machine in words, without its name."""
    models = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    (total,) = re.findall(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    cores = f"{os.cpu_count()} cores" + (f" ({models[0]})" if models else "")
    return f"{cores}, {int(total) / (1 << 20):.0f} GiB, Linux {platform.release().partition('-')[0]}"


def stored_limit() -> float:
    """Returns how long the stored run waited for a killed job; 0 if there is none."""
    return json.loads(LATEST.read_text())["limit_s"] if LATEST.exists() else 0.0


if __name__ == "__main__":
    sys.exit(main())
