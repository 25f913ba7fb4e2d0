"""The application's hooks: around attempts in the workers, and in jobs that tell of failures, crashes and giving up."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_app import chargehand
from world import World

import pgserver
from chargehand import (
    Chargehand,
    ConfigurationError,
    CrashFilter,
    HookEvent,
    JobFailed,
    JobFilter,
    RestartPolicy,
    State,
)
from chargehand.testing import eventually

FUNCTIONS: dict[str, Any] = {name: f"hooked_handlers:{name.removeprefix('on_')}" for name in ("on_end", "on_failure")}
FUNCTIONS["on_start"] = "hooked_handlers:begin"


@pytest.fixture(params=["sqlite", "postgres"])
def on_each_store(
    request: pytest.FixtureRequest, world: World, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Chargehand]:
    if request.param == "postgres":
        if (packages := pgserver.missing()) is not None:
            pytest.skip(f"hooks on PostgreSQL are NOT tested: pip install {packages}")
        monkeypatch.setenv("XDG_STATE_HOME", str(world.folder / "state"))
        world.address = pgserver.new_store()
    restart = RestartPolicy(first_pause=0.01, longest_pause=0.02, rapid_limit=4, lifetime_limit=9, breaker_window=0)
    made = chargehand(world.address, restart=restart)
    yield made
    made.close()


def crew_of(hand: Chargehand, world: World, name: str, handler: str, **options: Any) -> Any:
    return hand.crew(
        name, f"hooked_handlers:{handler}", environment={"HOOKS": str(world.folder / "hooks")}, backoff=0.0,
        workers=1, **options,
    )  # fmt: skip


def told(world: World, **which: Any) -> list[dict[str, Any]]:
    """Returns what was written, in order, as far as it has these values."""
    path = world.folder / "hooks"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if which.items() <= line.items()]


def said(hand: Chargehand, text: str) -> bool:
    """Whether the node has logged this."""
    return any(text in str(entry) for entry in hand.logs("songs"))


@pytest.mark.parametrize(
    ("handler", "options"),
    [("Hooked", {}), ("HookedAsync", {"concurrency": 2}), ("HookedBatch", {"batch": 2})],
    ids=["one", "many", "batch"],
)
def test_functions_are_called_around_each_attempt(
    hand: Chargehand, world: World, handler: str, options: dict[str, Any]
) -> None:  # spec: HK-1
    crew = crew_of(hand, world, "songs", handler, max_attempts=2, **options)
    hand.hooks(**FUNCTIONS)
    with hand.running():
        good, later = (crew.enqueue(each) for each in ("good", "later"))
        bad = crew.enqueue("fail", max_attempts=1)
        broken = crew.enqueue("still good", meta={"hooks": "fail"})
        assert [ref.wait(30) for ref in (good, later, broken)] == ["good", "later", "still good"]
        with pytest.raises(JobFailed):
            bad.wait(30)
        eventually(lambda: said(hand, "hook on_start raised") and said(hand, "hook on_end raised"))
    called = {ref: [(e["hook"], e["attempt"]) for e in told(world, job=ref.id)] for ref in (good, bad, later, broken)}
    assert called[good] == called[broken] == [("start", 1), ("end", 1)]
    assert called[bad] == [("start", 1), ("failure", 1), ("end", 1)]
    assert called[later] == [("start", 1), ("end", 1), ("start", 2), ("end", 2)]
    assert {e["error"] for e in told(world, hook="failure")} == {"ValueError('no such song')"}


@pytest.mark.parametrize(
    ("function", "why"),
    [("hooked_handlers:nothing", "cannot be imported"), ("hooked_handlers:wrong", "is declared async")],
)
def test_a_hook_that_cannot_be_called_is_told_at_the_start(
    hand: Chargehand, world: World, function: str, why: str
) -> None:  # spec: HK-1
    crew_of(hand, world, "songs", "Hooked")
    hand.hooks(on_start=function)
    with hand.running():
        text = eventually(lambda: [c.text for c in hand.crashes(CrashFilter()) if c.reason == "configuration error"])[0]
    assert f"hook on_start, {function!r}" in text
    assert why in text


def test_failures_crashes_and_giving_up_are_told_in_jobs_that_trigger_none(
    on_each_store: Chargehand, world: World
) -> None:  # spec: HK-1
    hand = on_each_store
    songs = crew_of(hand, world, "songs", "Hooked", max_attempts=2)
    crew_of(hand, world, "unable", "Unable")
    tell = crew_of(hand, world, "tell", "Receiver", takes=HookEvent, max_attempts=1)
    hand.hooks(on_failed=tell, on_crash=tell, on_given_up=tell)
    with hand.running():
        bad = songs.enqueue("fail", label="Blue in Green")
        good, poison = songs.enqueue("good"), songs.enqueue("crash")
        own = tell.enqueue(HookEvent(event="failed", at_ms=0, node="", queue="endless"))
        eventually(lambda: len(told(world, event="failed", queue="songs")) == 2, 60)
        eventually(lambda: len(told(world, event="crash", code="SIGKILL")) == 3, 60)
        (given_up,) = eventually(lambda: told(world, event="given_up"), 60)
        eventually(lambda: own.job().state is State.FAILED)
        assert good.wait(30) == "good"
        crashes = hand.crashes(CrashFilter(crew="songs"))
        jobs = hand.jobs(JobFilter(queue="tell"))
    (failed,) = told(world, job=bad.id)
    assert failed.items() >= {
        "event": "failed", "queue": "songs", "label": "Blue in Green", "crew": "songs", "worker": "worker:songs:0",
        "reason": "raised", "cause": "ValueError: no such song", "code": "ValueError", "node": hand.node_name,
    }.items()  # fmt: skip
    assert abs(failed["at_ms"] - (bad.job().finished_ms or 0)) < 10_000
    poisoned, crashed = told(world, job=poison.id, event="failed"), told(world, job=poison.id, event="crash")
    assert [(e["reason"], e["queue"]) for e in poisoned] == [("poison", "songs")]
    assert [(e["code"], e["worker"]) for e in crashed] == [("SIGKILL", "worker:songs:0")] * 3
    others = [crash for crash in crashes if crash.cause_code != "SIGKILL"]
    assert given_up.items() >= {"crew": "unable", "worker": "worker:unable:0", "workers_left": 0}.items()
    assert given_up["cause"].endswith("FileNotFoundError: model.onnx")
    # one job for each event, and none for the failure of the hook's own job
    unable = told(world, event="crash", crew="unable")
    assert len(jobs) == 2 + 3 + len(others) + 1 + len(unable) + 1
    assert {job.label for job in jobs} >= {"failed: Blue in Green", "given up: worker:unable:0"}


def test_what_is_told_is_written_with_what_it_tells_of(
    hand: Chargehand, world: World, make_hand: Callable[..., Chargehand]
) -> None:  # spec: HK-1
    songs = crew_of(hand, world, "songs", "Hooked", max_attempts=1)
    hand.hooks(on_failed=crew_of(hand, world, "tell", "Receiver", takes=HookEvent))
    hand.open()
    hand.pause("tell")
    with hand.running():
        ref = songs.enqueue("fail")
        with pytest.raises(JobFailed):
            ref.wait(30)
        first = hand.jobs(JobFilter(queue="tell"))
        hand.retry(ref.id)
        with pytest.raises(JobFailed):
            ref.wait(30)
        both = hand.jobs(JobFilter(queue="tell"))
    assert [(job.state, len(first), len(both)) for job in both] == [(State.QUEUED, 1, 2)] * 2
    again = make_hand()
    crew_of(again, world, "tell", "Receiver", takes=HookEvent)
    again.resume("tell")
    with again.running():
        eventually(lambda: len(told(world, event="failed", job=ref.id)) == 2)


def test_mistakes_in_the_declaration_are_named(hand: Chargehand, tmp_path: Path) -> None:  # spec: HK-1
    plain = hand.crew("plain", "hooked_handlers:Hooked", takes=str)
    given: list[tuple[dict[str, Any], str]] = [
        ({"on_start": test_mistakes_in_the_declaration_are_named}, "must be its name as a string"),
        ({"on_start": "begin"}, "must be 'module:function'"),
        ({"on_failed": plain}, "hook on_failed is crew 'plain', which does not take chargehand.HookEvent"),
        ({"on_crash": "plain"}, "expected what hand.crew"),
    ]
    for hooks, why in given:
        with pytest.raises(ConfigurationError, match=why.replace("(", r"\(")):
            hand.hooks(**hooks)
    hand.hooks(on_end="hooked_handlers:end")
    with pytest.raises(ConfigurationError, match="there are two hooks on_end"):
        hand.hooks(on_end="hooked_handlers:end")
