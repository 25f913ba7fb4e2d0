"""The application of the chaos test: `chargehand work chaos.app:hand`."""

import os
from pathlib import Path

import msgspec

from chargehand import Chargehand, LivenessPolicy, RestartPolicy
from chargehand.model.job import DEFAULT_MAX_ATTEMPTS

FOLDER, LIMITS, RUN = "CHAOS_FOLDER", "CHAOS_LIMITS", "CHAOS_RUN"
"""Environment variables of every process of a run: its folder, its limits, and the marker that identifies it."""
SERVER = "CHAOS_SERVER"
"""Environment variable: the URL of the store, if that is on a server."""

LIFTED = RestartPolicy(
    first_pause=0.01, longest_pause=0.05, rapid_limit=10**9, lifetime_limit=10**9, breaker_window=0.0
)
HASTY = RestartPolicy(first_pause=0.05, longest_pause=0.2)
"""The default limits with short restart delays, so that the limit is reached in seconds."""
LIVELY = LivenessPolicy(beat=0.2, first_frame=4.0, set_up=20.0, silent=1.0, grace=2.0, terminate=0.5)
LEASE = 6.0
"""Seconds without a beat after which other nodes of the same store take the jobs of a node."""
LEASED = msgspec.structs.replace(LIVELY, lease=LEASE, node_beat=0.5, cancel=2.0)
"""For several nodes: how long each waits for the others."""

SHIPPED, CAREFUL, CHURN, TINY, FLOWS = "shipped", "careful", "churn", "tiny", "flows"
"""Further limits. SHIPPED and CAREFUL: the default leases, without and with a crew whose jobs stop if their node is cut
off. CHURN: as 'lifted', with one more crew for tens of thousands of jobs. TINY: with one crew of tiny jobs. FLOWS: with
the crews of a flow."""

MANY_ATTEMPTS = 30
"""A job that settles itself fails whenever the server is away."""
WORK, SETTLE = 4, 2
"""Number of workers of the two crews."""


def store_of(folder: Path) -> Path | str:
    """Returns the path or the URL of the store of a run."""
    return os.environ.get(SERVER) or folder / "chargehand.db"


def insert(table: str, columns: int = 1) -> str:
    """Returns the statement that inserts a row into a table of the test."""
    mark = "%s" if SERVER in os.environ else "?"
    return f"INSERT INTO {table} VALUES ({', '.join([mark] * columns)})"


def hand_of(folder: Path, limits: str) -> Chargehand:
    """Returns the application, equal in hosts, enqueuer and test; `limits` is 'default', 'lifted' or one of those."""
    if limits == "default":
        hand = Chargehand(store_of(folder), restart=HASTY, liveness=LIVELY)
        hand.crew("idle", "chaos.handlers:Worker", workers=2)
        return hand
    if limits == TINY:
        hand = Chargehand(store_of(folder), restart=LIFTED, liveness=LIVELY)
        hand.crew("tiny", "chaos.handlers:Tiny", workers=WORK)
        return hand
    if limits == FLOWS:
        hand = Chargehand(store_of(folder), restart=LIFTED, liveness=LEASED if SERVER in os.environ else LIVELY)
        for crew, handler, workers in (
            ("split", "Split", 1),
            ("part", "Part", 2),
            ("add", "Add", 1),
            ("told", "Churn", 1),
        ):
            hand.crew(crew, f"chaos.handlers:{handler}", workers=workers)
        return hand
    shipped = limits in (SHIPPED, CAREFUL)
    lively = None if shipped else LEASED if SERVER in os.environ else LIVELY
    hand = Chargehand(store_of(folder), restart=LIFTED, liveness=lively)
    tries = MANY_ATTEMPTS if SERVER in os.environ else DEFAULT_MAX_ATTEMPTS
    hand.crew("work", "chaos.handlers:Worker", workers=WORK, max_attempts=tries)
    hand.crew("settle", "chaos.handlers:Settler", workers=SETTLE, transactional=True, max_attempts=tries)
    if shipped:
        hand.crew("long", "chaos.handlers:Long", workers=1, max_attempts=tries)
    if limits == CHURN:
        hand.crew("churn", "chaos.handlers:Churn", workers=1)
    if limits == CAREFUL:
        hand.crew("careful", "chaos.handlers:Long", workers=1, max_attempts=tries, when_cut_off="stop")
    return hand


hand = hand_of(Path(os.environ.get(FOLDER, ".")), os.environ.get(LIMITS, "lifted"))
