"""From where requests come, and how bad sign-ins are slowed down: on a virtual clock."""

import pytest

from chargehand.model.origin import BadSignIns, group_of, networks, origin_of

HERE, AWAY = "127.0.0.1", "203.0.113.7"


@pytest.mark.parametrize(
    ("peer", "header", "trusted", "origin"),
    [
        (AWAY, [], [], AWAY),
        (None, [], [], "unknown"),
        ("", [], [], "unknown"),
        ("localhost", [], [], "unknown"),
        (f"::ffff:{AWAY}", [], [], AWAY),
        ("fe80::1%\x1b[31m", [], [], "fe80::1"),
        (AWAY, [HERE], [], AWAY),
        (AWAY, [f"1.1.1.1, {AWAY}"], [], "unknown"),
        (AWAY, ["1.1.1.1", f"[::ffff:{AWAY}]:80"], [], "unknown"),
        (HERE, ["1.1.1.1"], [HERE], "1.1.1.1"),
        (HERE, ["1.1.1.1, 2.2.2.2"], [HERE], "2.2.2.2"),
        (HERE, ["1.1.1.1", "2.2.2.2:99"], [HERE], "2.2.2.2"),
        (HERE, ["1.1.1.1, 10.0.0.9"], [HERE, "10.0.0.0/8"], "1.1.1.1"),
        (HERE, ["10.0.0.8, 10.0.0.9"], [HERE, "10.0.0.0/8"], "10.0.0.8"),
        (HERE, ["1.1.1.1, \x1b[2J"], [HERE], HERE),
        (HERE, [], [HERE], HERE),
        (AWAY, ["1.1.1.1"], [HERE], AWAY),
    ],
)
def test_the_origin_is_an_address_that_is_known_or_unknown(  # spec: SE-8
    peer: str | None, header: list[str], trusted: list[str], origin: str
) -> None:
    assert origin_of(peer, header, networks(trusted)) == origin


def test_ten_bad_sign_ins_a_minute_are_checked_and_the_rest_is_not() -> None:  # spec: SE-8
    bad, at = BadSignIns(), 1000.0
    for number in range(10):
        assert bad.wait(AWAY, at + number) == 0
        verdict = bad.failed(AWAY, at + number)
        assert (verdict.logged, verdict.begins) == (True, number == 9)
    assert bad.wait(AWAY, at + 9) == 51
    assert bad.wait(HERE, at + 9) == 0
    for second in range(10, 60):  # what is refused does not count, and is not logged
        verdict = bad.failed(AWAY, at + second)
        assert (verdict.logged, verdict.begins) == (False, False)
    assert bad.wait(AWAY, at + 59.9) > 0
    assert bad.wait(AWAY, at + 60) == 0


def test_whoever_goes_on_gets_ten_a_minute_and_is_reported_once_a_minute() -> None:  # spec: SE-8
    bad, checked, reported = BadSignIns(), 0, 0
    for second in range(600):
        if bad.wait(AWAY, second) == 0:
            checked += 1
            reported += bad.failed(AWAY, second).begins
    assert checked == 100
    assert reported == 10


def test_an_ipv6_site_counts_as_one_and_the_memory_is_limited() -> None:  # spec: SE-8
    assert group_of("2001:db8::1") == group_of("2001:db8::ffff:1") != group_of("2001:db8:0:1::1")
    assert group_of("no address") == group_of("unknown")
    bad = BadSignIns(most=1, origins=2)
    for origin in ("1.1.1.1", "2.2.2.2", "3.3.3.3"):
        bad.failed(origin, 0)
    assert [bad.wait(origin, 0) > 0 for origin in ("1.1.1.1", "2.2.2.2", "3.3.3.3")] == [False, True, True]
