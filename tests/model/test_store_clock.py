"""Tests for the time of a store whose clock is not that of the node."""

from chargehand.model.store_clock import JITTER_MS, StoreClock

# spec: MN-4


def test_without_a_reading_the_store_has_the_clock_of_the_machine() -> None:
    assert StoreClock().now_ms(5000, 1.0) == 5000


def test_the_time_passes_by_the_monotonic_clock_whatever_the_machine_says() -> None:
    found = StoreClock()
    found.read(1_000_000, 10.0)
    assert found.now_ms(5, 10.0) == 1_000_000
    assert found.now_ms(99_000_000, 12.5) == 1_002_500


def test_a_late_answer_does_not_set_it_back_and_a_clock_that_was_set_does() -> None:
    found = StoreClock()
    found.read(1_000_000, 10.0)
    found.read(1_000_000, 10.0 + JITTER_MS / 1000)
    assert found.now_ms(0, 11.0) == 1_001_000
    found.read(1_001_300, 11.2)
    assert found.now_ms(0, 11.2) == 1_001_300, "it was late before"
    found.read(500_000, 12.0)
    assert found.now_ms(0, 12.0) == 500_000
