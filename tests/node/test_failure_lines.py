"""The log lines about attempts that did not succeed."""

import logging

import pytest

from chargehand.codec import MARK
from chargehand.log import Human
from chargehand.model.job import Claim, Crashed, GaveUp, Outcome, Raised, Stopped, settle
from chargehand.node.node import _tell_failure

CLAIM = Claim(
    id="j", seq=1, number=1, queue="q", payload="null", label=None, priority=0, failures=0, max_attempts=3, crashes=0,
    timeout_ms=None, item=f"caf{MARK}xe9\n.flac",
)  # fmt: skip


@pytest.mark.parametrize("outcome", [Raised("why"), GaveUp("why"), Crashed("why"), Stopped()])
def test_a_line_about_an_attempt_names_the_item(outcome: Outcome, caplog: pytest.LogCaptureFixture) -> None:
    # spec: WP-10 HP-5
    caplog.set_level(logging.INFO)
    settlement = settle(CLAIM, outcome)
    assert settlement is not None
    _tell_failure(settlement)
    (record,) = caplog.records
    assert 'queue=q item="caf\\xe9\\n.flac"' in Human("node").format(record)
