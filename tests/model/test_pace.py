"""How late the supervisor is, wherever it was held up."""

from chargehand.model.fleet.pace import LATE, Pace


def test_what_was_meant_to_be_waited_is_not_late() -> None:  # spec: SV-3
    pace = Pace(100.0)
    assert pace.late(160.0, 60.0) == 0
    assert pace.late(160.0 + LATE) == 0


def test_a_stop_is_seen_wherever_it_falls() -> None:  # spec: SV-3
    """In the wait, while frames are handled, or between two turns."""
    pace = Pace(0.0)
    assert pace.late(3.5, 0.5) == 3.0
    assert pace.late(6.5) == 3.0
    assert pace.late(9.5) == 3.0
    assert pace.late(9.75) == 0


def test_what_was_forgiven_is_not_forgiven_again() -> None:  # spec: SV-3
    pace = Pace(0.0)
    assert pace.late(5.0) == 5.0
    assert pace.late(5.5, 0.5) == 0
