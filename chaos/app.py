"""The application of the chaos test: `chargehand work chaos.app:hand`."""

import os
from pathlib import Path

from chargehand import Chargehand, LivenessPolicy, RestartPolicy

FOLDER, LIMITS, RUN = "CHAOS_FOLDER", "CHAOS_LIMITS", "CHAOS_RUN"
"""Environment variables of every process of a run: its folder, its limits, and the marker that identifies it."""

LIFTED = RestartPolicy(
    first_pause=0.01, longest_pause=0.05, rapid_limit=10**9, lifetime_limit=10**9, breaker_window=0.0
)
HASTY = RestartPolicy(first_pause=0.05, longest_pause=0.2)
"""The default limits with short restart delays, so that the limit is reached in seconds."""
LIVELY = LivenessPolicy(beat=0.2, first_frame=4.0, set_up=20.0, silent=1.0, grace=2.0, terminate=0.5)

WORK, SETTLE = 4, 2
"""Number of workers of the two crews."""


def store_of(folder: Path) -> Path:
    """Returns the path of the store of a run."""
    return folder / "chargehand.db"


def hand_of(folder: Path, limits: str) -> Chargehand:
    """Returns the application, equal in hosts, enqueuer and test; `limits` is 'lifted' or 'default'."""
    if limits == "default":
        hand = Chargehand(store_of(folder), restart=HASTY, liveness=LIVELY)
        hand.crew("idle", "chaos.handlers:Worker", workers=2)
        return hand
    hand = Chargehand(store_of(folder), restart=LIFTED, liveness=LIVELY)
    hand.crew("work", "chaos.handlers:Worker", workers=WORK)
    hand.crew("settle", "chaos.handlers:Settler", workers=SETTLE, transactional=True)
    return hand


hand = hand_of(Path(os.environ.get(FOLDER, ".")), os.environ.get(LIMITS, "lifted"))
