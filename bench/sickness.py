"""Measures how many good jobs one broken process fails for good beside a sound one."""

from collections.abc import Iterable

from bench.hosting import CrewSpec
from bench.row import Row, measures
from bench.scene import PATIENCE, stage
from chargehand import State
from chargehand.testing import eventually

GOOD = 1000


@measures("good jobs that a broken process fails")
def lost_jobs() -> Iterable[Row]:
    """2 workers; one job makes its process fail everything. Jobs have the default of 3 attempts."""
    with stage(CrewSpec("sick", "Sick", 2)) as on:
        refs = on.crew.enqueue_many([None] * 50)
        on.crew.enqueue("sick", max_attempts=1)
        refs += on.crew.enqueue_many([None] * (GOOD - len(refs)))
        counts = on.hand.counts
        eventually(
            lambda: not any(each.queued or each.running for each in counts()), PATIENCE, what="all jobs have ended"
        )
        lost = sum(ref.job().state is not State.DONE for ref in refs)
    yield Row("good jobs that a broken process fails", lost, f"of {GOOD:,}", None, 0)
