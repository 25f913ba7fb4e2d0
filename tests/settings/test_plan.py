"""Settings of crews and options of jobs: checked once, refused with the name, the value and what is allowed."""

from pathlib import Path
from typing import Annotated, Any, Literal, NewType, cast

import msgspec
import pytest

from chargehand import Chargehand
from chargehand.crew import JobOptions
from chargehand.errors import ConfigurationError, PayloadError
from chargehand.model.fleet.policy import LivenessPolicy
from chargehand.model.job import LONGEST_DELAY_MS, NewJob
from chargehand.settings.plan import (
    UNSET,
    CrewPlan,
    NodePlan,
    check_crew,
    check_node,
    check_type,
    milliseconds,
    new_job,
)


def plan(**options: Any) -> CrewPlan:
    given: dict[str, Any] = {"name": "tag", "queue": "tag", "handler": "tagging:Tagger", **options}
    return CrewPlan(**given)


# crews


# spec: CF-1
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"name": "a-b_c.d", "queue": "ü"},
        {"name": "x" * 200},
        {"handler": "a.b.c:D.E"},
        {"handler": "_a:_B"},
        {"workers": 0},
        {"workers": 1000},
        {"max_attempts": 1},
        {"timeout_ms": None},
        {"timeout_ms": 1},
        {"priority": -5},
        {"when_cut_off": "go on"},
        {"when_cut_off": "stop"},
        {"environment": {"CUDA_VISIBLE_DEVICES": "{index}", "PLAIN": "x"}},
        {"environment": {"A": "{nobody}", "B": "{"}},
    ],
)
def test_a_sound_crew_is_accepted(options: dict[str, Any]) -> None:
    made = plan(**options)
    assert check_crew(made) is made


# spec: CF-1
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "crew name ''.*1 to 200"),
        ({"name": "x" * 201}, "crew name.*1 to 200"),
        ({"name": "a:b"}, "crew name 'a:b'"),
        ({"name": "a b"}, "crew name 'a b'"),
        ({"name": "*"}, "crew name"),
        ({"name": "a/b"}, "crew name"),
        ({"name": "a\nb"}, "crew name"),
        ({"queue": ""}, "crew queue"),
        ({"queue": "a:b"}, "crew queue 'a:b'"),
        ({"queue": "\x1b"}, "crew queue"),
        ({"handler": ""}, "handler ''.*'module:Class'"),
        ({"handler": "tagging"}, "handler 'tagging'.*'module:Class'"),
        ({"handler": "tagging:"}, "handler"),
        ({"handler": ":Tagger"}, "handler"),
        ({"handler": "a:b:c"}, "handler"),
        ({"handler": "a b:C"}, "handler"),
        ({"handler": "a..b:C"}, "handler"),
        ({"handler": "a/b.py:C"}, "handler"),
        ({"handler": "a:C()"}, "handler"),
        ({"workers": -1}, "'tag': workers is -1; must be 0 to 1000"),
        ({"workers": 1001}, "workers is 1001"),
        ({"workers": "two"}, "^crew 'tag': workers is 'two'; must be a whole number$"),
        ({"workers": True}, "^crew 'tag': workers is True; must be a whole number$"),
        ({"workers": object()}, "^crew 'tag': workers is <object .*>; must be a whole number$"),
        ({"limit": "1"}, "^crew 'tag': limit is '1'; must be a whole number or None$"),
        *(
            (
                {name: text},
                f"^crew 'tag': {name} is '{text}'; must be a number of jobs .1 to 1000000., a slash and one of ",
            )
            for name in ("rate", "rate_per_key")
            for text in (
                "",
                "600",
                "min",
                "/min",
                "0/min",
                "-1/min",
                "1.5/s",
                "10/fortnight",
                "10/2min",
                "10/S",
                "10 per s",
                "1000001/day",
                "9999999999/day",
                "10/s, 20/min",
                "١/s",
            )
        ),
        ({"rate": 600}, "^crew 'tag': rate is 600; must be a string such as '10/s' or '600/min'$"),
        ({"rate_per_key": -1}, "^crew 'tag': rate_per_key is -1; must be a string such as '10/s' or '600/min'$"),
        ({"idle_exit": "1h"}, "^crew 'tag': idle_exit is '1h'; must be a number or None$"),
        ({"backoff": ()}, r"^crew 'tag': backoff is \(\); must be seconds"),
        ({"backoff": -1}, "^crew 'tag': backoff is -1; must be seconds"),
        ({"backoff": (1, -1)}, "backoff is .*; must be seconds"),
        ({"backoff": "often"}, "^crew 'tag': backoff is 'often'; must be a number of seconds, or a list of them$"),
        ({"retry_on": ("not a name",)}, "retry_on contains 'not a name'; must be the name of an exception type"),
        ({"give_up_on": ("",)}, "give_up_on contains ''; must be the name"),
        (
            {"retry_on": ("A", "B"), "give_up_on": ("B",)},
            "^crew 'tag': B is in retry_on and in give_up_on; choose one$",
        ),
        ({"when_cut_off": "wait"}, "^crew 'tag': when_cut_off is 'wait'; must be 'go on' or 'stop'$"),
        ({"discovers": "no"}, "^crew 'tag': discovers is 'no'; must be True or False$"),
        ({"environment": {"A": 1}}, "^crew 'tag': environment is {'A': 1}; must be a dict of strings by names$"),
        ({"queue": 5}, "^crew 'tag': queue is 5; must be a string$"),
        ({"max_attempts": 0}, "'tag': max_attempts is 0; must be 1"),
        ({"timeout_ms": 0}, "'tag': timeout is 0"),
        ({"timeout_ms": -5}, "timeout is -5"),
        ({"priority": 10_000_000}, "'tag': priority is 10000000; must be"),
        ({"environment": {"A=B": "x"}}, "'tag'.*(environment|A=B)"),
        ({"environment": {"A": "a\0b"}}, "'tag'.*(environment|A)"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name_and_what_is_allowed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_crew(plan(**options))


# spec: WK-19
@pytest.mark.parametrize("text", ["600/min", "10/s", "5000/h", "1/day", " 1000000 / day "])
def test_a_rate_is_a_number_of_jobs_within_a_unit_of_time(text: str) -> None:
    made = plan(rate=text, rate_per_key=text)
    assert check_crew(made) is made


# spec: CF-1, WK-7
def test_a_crew_has_the_defaults_of_the_specification() -> None:
    made = plan()
    assert (made.workers, made.priority, made.max_attempts, made.timeout_ms) == (1, 0, 3, 3_600_000)
    assert made.transactional is False
    assert made.environment == {}


# spec: WP-1
def test_a_plan_crosses_a_socket_unchanged() -> None:
    made = NodePlan(store="/a.db", node="n", crews=(plan(timeout_ms=None), plan(name="b")), python_path=("/x",))
    assert msgspec.json.decode(msgspec.json.encode(made), type=NodePlan) == made


# spec: CF-1
def test_every_option_of_a_crew_has_its_type_in_words() -> None:
    for field in msgspec.structs.fields(CrewPlan):
        with pytest.raises(ConfigurationError, match=f"'?: {field.name} is <object .*>; must be "):
            check_crew(plan(**{field.name: object()}))


# spec: CF-1
@pytest.mark.parametrize("seconds", ["1h", True, 1e30])
def test_a_wrong_duration_of_a_setting_is_a_wrong_setting(seconds: Any, tmp_path: Path) -> None:
    hand = Chargehand(str(tmp_path / "a.db"), folder=tmp_path)
    with pytest.raises(ConfigurationError, match=r"^crew 'tag': timeout is "):
        hand.crew("tag", "tagging:Tagger", timeout=seconds)
    crew = hand.crew("other", "tagging:Tagger")
    with pytest.raises(ConfigurationError, match=r"^recurring job 'tick': every is "):
        hand.recurring("tick", crew, every=seconds)


# spec: WK-11
@pytest.mark.parametrize(
    ("name", "options", "label"),
    [
        ("nightly", {}, "nightly"),
        ("nightly", {"label": "rescan"}, "rescan"),
        ("n" * 200, {}, "n" * 200),
        ("n" * 201, {}, None),
        ("a\nb", {}, None),
        ("", {}, None),
    ],
)
def test_a_recurring_job_has_the_name_of_its_schedule_as_label(
    name: str, options: JobOptions, label: str | None, tmp_path: Path
) -> None:
    hand = Chargehand(str(tmp_path / "a.db"), folder=tmp_path)
    hand.recurring(name, hand.crew("tag", "tagging:Tagger"), every=60, **options)
    (entry,) = hand._node_plan().recurring
    assert entry.job.label == label


# spec: CF-1
def test_the_name_of_a_recurring_job_is_a_string(tmp_path: Path) -> None:
    hand, number = Chargehand(str(tmp_path / "a.db"), folder=tmp_path), cast(Any, 5)
    with pytest.raises(ConfigurationError, match="recurring job 5: the name must be a string"):
        hand.recurring(number, hand.crew("tag", "tagging:Tagger"), every=60)


# spec: CF-1
@pytest.mark.parametrize(
    ("name", "zone", "error"),
    [
        ("a\0b", "UTC", r"'a\\x00b': the name must be valid Unicode without NUL"),
        ("\ud800", "UTC", r"'\\ud800': the name must be valid Unicode without NUL"),
        ("a", None, "'a': zone is None; must be a string"),
    ],
)
def test_a_recurring_job_that_no_store_can_hold_is_refused(name: str, zone: Any, error: str, tmp_path: Path) -> None:
    hand = Chargehand(str(tmp_path / "a.db"), folder=tmp_path)
    with pytest.raises(ConfigurationError, match=f"^recurring job {error}"):
        hand.recurring(name, hand.crew("tag", "tagging:Tagger"), cron="0 3 * * *", zone=zone)


# durations


# spec: CF-1
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, 0),
        (1, 1000),
        (1.5, 1500),
        (0.0004, 0),
        (0.0006, 1),
        (-2, -2000),
        (LONGEST_DELAY_MS / 1000, LONGEST_DELAY_MS),
    ],
)
def test_seconds_become_whole_milliseconds(seconds: float, expected: int) -> None:
    assert milliseconds("delay", seconds) == expected


# spec: CF-1
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -float("inf"), "5", None, True, [1], 1j])
def test_what_is_no_number_of_seconds_is_refused_in_words(seconds: Any) -> None:
    with pytest.raises(PayloadError, match=r"delay is .*; must be a number of seconds"):
        milliseconds("delay", seconds)


# spec: CF-1
@pytest.mark.parametrize("seconds", [1e30, -1e30, LONGEST_DELAY_MS, pytest.param(10**400, id="400 digits")])
def test_more_than_a_lifetime_is_refused_in_words(seconds: float) -> None:
    with pytest.raises(PayloadError, match="delay is"):
        milliseconds("delay", seconds)


# jobs


# spec: WK-2
def test_a_job_has_what_its_crew_gives_it() -> None:
    crew = plan(queue="q", priority=4, max_attempts=7, timeout_ms=50)
    made = new_job(crew, "[1]")
    assert made == NewJob(id=made.id, queue="q", payload="[1]", priority=4, max_attempts=7, timeout_ms=50)


# spec: WK-2
def test_a_jobs_own_options_win() -> None:
    crew = plan(priority=4, max_attempts=7, timeout_ms=50)
    made = new_job(
        crew, "1", id="me", label="L", key="k", priority=0, delay=1.5, max_attempts=1, timeout=2
    )  # fmt: skip
    assert made == NewJob(
        id="me", queue="tag", payload="1", label="L", key="k", priority=0, delay_ms=1500, max_attempts=1,
        timeout_ms=2000,
    )  # fmt: skip
    assert new_job(crew, "1", run_at_ms=9).run_at_ms == 9


def test_a_job_has_one_time() -> None:
    with pytest.raises(PayloadError, match="delay and run_at"):
        new_job(plan(), "1", delay=1.5, run_at_ms=9)


# spec: WK-7
@pytest.mark.parametrize(
    ("crew", "timeout", "expected"), [(50, UNSET, 50), (None, UNSET, None), (50, None, None), (None, 3, 3000)]
)
def test_no_timeout_is_not_the_same_as_none_given(crew: int | None, timeout: Any, expected: int | None) -> None:
    assert new_job(plan(timeout_ms=crew), "1", timeout=timeout).timeout_ms == expected


# spec: WK-2
def test_every_job_has_an_id_of_its_own() -> None:
    assert len({new_job(plan(), "1").id for _ in range(1000)}) == 1000


# spec: WK-2, CF-1
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": -1}, "delay is -1 s; must be 0"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": "1"}, "delay is '1'; must be a number"),
        ({"delay": 1e20}, "delay"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": -1}, "timeout is -1 s; must be more than 0"),
        ({"timeout": 0.0001}, "timeout is 0"),
        ({"timeout": True}, "timeout is True"),
        ({"priority": 1.5}, "priority is 1.5; must be a whole number"),
        ({"priority": "high"}, "priority is 'high'"),
        ({"priority": True}, "priority is True"),
        ({"priority": 10**9}, "priority is 1000000000; must be"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": 2.0}, "max_attempts is 2.0; must be a whole number"),
        ({"run_at_ms": 1.5}, "run_at_ms is 1.5; must be a whole number"),
        ({"run_at_ms": True}, "run_at_ms is True"),
        ({"run_at_ms": 10**30}, "run_at"),
        ({"label": "x" * 201}, "label has 201"),
        ({"key": ""}, "key has 0"),
        ({"id": "a\nb"}, "id.*control"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_what_is_allowed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PayloadError, match=words):
        new_job(plan(), "1", **options)


# spec: SE-3
def test_a_payload_over_the_limit_is_refused_in_words() -> None:
    with pytest.raises(PayloadError, match="1,048,576"):
        new_job(plan(), '"' + "x" * (1 << 20) + '"')


@pytest.mark.parametrize("kind", [5, "Song", [int], {"a": int}, len])
@pytest.mark.parametrize("word", ["takes", "gives"])
def test_what_is_no_type_is_refused(word: str, kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"crew 'tag': {word} is .*, which is not a type"):
        check_type("tag", word, kind)


def test_types_of_every_sort_are_taken() -> None:
    for kind in (None, Any, dict, list[int], int | None, Literal["a"], NewType("Id", int), Annotated[int, "x"]):
        check_type("tag", "takes", kind)


# spec: MN-2, CF-1
def test_a_crew_that_stops_when_cut_off_needs_a_lease_in_which_its_jobs_can_be_cancelled(tmp_path: Path) -> None:
    def node(**crew: Any) -> NodePlan:
        liveness = LivenessPolicy(lease=10, cancel=7)
        return NodePlan(store=str(tmp_path), node="n", crews=(plan(**crew),), python_path=(), liveness=liveness)

    assert check_node(node()) == node()
    with pytest.raises(
        ConfigurationError, match=r"crew 'tag': when_cut_off is 'stop'.*the sum of .* must be at most 6 s"
    ):
        check_node(node(when_cut_off="stop"))
    assert Chargehand(tmp_path / "s.db").crew("tag", "a:B", when_cut_off="stop").plan.when_cut_off == "stop"


# spec: WK-16
def test_exception_types_of_a_crew_are_classes_or_names(tmp_path: Path) -> None:
    hand = Chargehand(tmp_path / "s.db")
    plan = hand.crew("a", "a:B", retry_on=[OSError, "my.Error"], give_up_on=PayloadError, backoff=[1, 10.5]).plan
    assert (plan.retry_on, plan.give_up_on) == (("OSError", "my.Error"), ("chargehand.errors.PayloadError",))
    assert plan.backoff == (1, 10.5)
    assert hand.crew("b", "a:B", backoff=5).plan.backoff == 5
    for wrong in (7, [int], [OSError("an instance")]):
        with pytest.raises(ConfigurationError, match="must be an exception type or its name"):
            hand.crew("c", "a:B", retry_on=wrong)  # type: ignore[arg-type]
