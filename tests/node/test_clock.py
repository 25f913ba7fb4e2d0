"""The node's check of the clock: times in the store are corrected when the clock was set back."""

from typing import Any, ClassVar, cast

import msgspec
import pytest

from chargehand import clock
from chargehand.model import chores
from chargehand.model.batch import Batch, Result
from chargehand.model.ledger import Ledger
from chargehand.model.records import RecurringPlan, Rescheduling
from chargehand.node.requests import Requests
from chargehand.settings.schedule import Schedule

DAY = 24 * 3600 * 1000


class Nothing:
    """Stands for the parts that a check of the clock does not use."""

    crews = ()
    places: ClassVar[dict[str, Any]] = {}

    def tell(self, event: object) -> None:
        """Ignores the event."""


def every_second(next_run_ms: int) -> RecurringPlan:
    text = msgspec.json.encode(Schedule(every_ms=1000)).decode()
    return RecurringPlan(name="tick", schedule=text, job='{"id": "", "queue": "q"}', next_run_ms=next_run_ms)


def requests(ledger: Ledger) -> Requests:
    nothing = cast(Any, Nothing())
    return Requests(nothing, nothing, ledger, nothing, nothing, nothing, nothing)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_interval_goes_on_when_the_clock_was_a_day_ahead(
    monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:  # spec: WK-11
    now_ms = 1_700_000_000_000
    plan = every_second(now_ms + DAY + 1000)
    ledger = Ledger([("q", "q")], lambda: 0.0, 0.0)
    checked = requests(ledger)
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms + (0 if restarted else DAY))
    recur = Batch(chores=(chores.Recur((plan,)),))
    ledger.next_batch(0.0)
    checked.committed(recur, Result(done=(None,), recurring=(plan,)), 0.0)
    checked.fire(1.0)
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    checked.fire(9.0)
    ledger.confirm(Result(), 9.0)
    wanted = Rescheduling(name="tick", due_ms=plan.next_run_ms, next_run_ms=now_ms + 1000)
    assert ledger.next_batch(9.0).chores == (chores.SetClockBack((wanted,)),)
