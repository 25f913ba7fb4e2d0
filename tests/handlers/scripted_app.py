"""The application of the process tests, also for `chargehand work`; its handlers are in `scripted_handlers`."""

import os
from pathlib import Path
from typing import Any

from chargehand import Chargehand, LivenessPolicy, RestartPolicy

QUICK = RestartPolicy(first_pause=0.01, longest_pause=0.02, rapid_limit=10**6, lifetime_limit=10**6, breaker_window=0)
LIVELY = LivenessPolicy(beat=0.2, silent=1.0, grace=2.0, terminate=0.5)


MADE: list[Chargehand] = []
"""Whatever a test used of these, also after it closed them, is closed when it ends."""


def chargehand(path: Path | str, **settings: Any) -> Chargehand:
    """A Chargehand with short pauses, for tests that kill."""
    settings.setdefault("restart", QUICK)
    settings.setdefault("liveness", LIVELY)
    MADE.append(Chargehand(path, **settings))
    return MADE[-1]


# The application for `chargehand work scripted_app:hand`; its store is named by CHARGEHAND_URL.
if "CHARGEHAND_URL" in os.environ:
    hand = chargehand("unused")
    do = hand.crew("do", "scripted_handlers:Doer", workers=int(os.environ.get("TEST_WORKERS", "2")))
    other = hand.crew("other", "scripted_handlers:Doer", takes=dict, workers=1)
