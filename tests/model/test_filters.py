"""Filters of jobs and crash reports: what is not of the right type is refused in words."""

from typing import Any

import pytest

from chargehand import ConfigurationError
from chargehand.model.job import State
from chargehand.model.records import CrashFilter, JobFilter


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"state": "broken"}, "JobFilter: state is 'broken': Invalid enum value"),
        ({"state": 7}, "JobFilter: state is 7: "),
        ({"queue": b"tag"}, "JobFilter: queue is b'tag': Expected `str | null`, got `bytes`"),
        ({"limit": "50"}, "JobFilter: limit is '50': Expected `int`, got `str`"),
        ({"limit": -1}, "JobFilter: limit is -1: Expected `int` >= 0"),
        ({"limit": 10**20}, "JobFilter: limit is 100000000000000000000: Expected `int` <= "),
        ({"tag": ["a"]}, "JobFilter: tag is ['a']: "),
    ],
)
def test_a_filter_of_the_wrong_types(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        JobFilter(**wrong)
    assert str(error.value).startswith(text)


def test_a_state_may_be_given_by_its_name() -> None:
    assert JobFilter(state="failed").state is State.FAILED  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="CrashFilter: crew is 3"):
        CrashFilter(crew=3)  # pyright: ignore[reportArgumentType]
