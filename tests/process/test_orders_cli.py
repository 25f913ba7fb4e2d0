"""Orders from another terminal: what is said, what becomes of the workers, exit statuses, wrong input."""

import os
import signal
from typing import Any

from operating import FAULTY, WRONG, answered, at_once, become, command, many, pids, said, serving, statuses, together
from world import World, gone

from chargehand import Chargehand
from chargehand.log import Event
from chargehand.testing import eventually

TWO = "hand.crew('do', 'scripted_handlers:Doer', workers=2); hand.crew('other', 'scripted_handlers:Doer')"
ALL = {"do:0", "do:1", "other:0"}


def test_every_order_from_another_terminal(world: World) -> None:  # spec: CL-2 CL-3 SV-10
    with serving(world, TWO) as served:
        hand = served.hand
        first = {name: worker["pid"] for name, worker in become(hand, dict.fromkeys(ALL, "healthy")).items()}
        assert said(world, "stop", "do:0") == "worker:do:0: stops\n"
        become(hand, {"do:0": "stopped", "do:1": "healthy", "other:0": "healthy"})
        assert gone(first["do:0"])
        again, started = together(world, "stop do:0", "start do:1")
        assert (again.returncode, again.stdout) == (0, "worker:do:0: is stopped\n")
        assert (started.returncode, started.stdout) == (0, "worker:do:1: is already running\n")
        assert answered(world, "start", "do") == [
            {"component": "worker:do:0", "text": "starts", "code": "starts"},
            {"component": "worker:do:1", "text": "is already running", "code": "runs"},
        ]
        become(hand, dict.fromkeys(ALL, "healthy"))
        assert said(world, "drain", "worker:other:0") == "worker:other:0: stops\n"
        become(hand, {"do:0": "healthy", "do:1": "healthy", "other:0": "stopped"})
        assert {answer["text"] for answer in answered(world, "restart")} == {"restarts", "starts"}
        eventually(lambda: not set(first.values()) & set(pids(hand).values()))
        become(hand, dict.fromkeys(ALL, "healthy"))
        cleared, up = together(world, "reset other", "scale other 2")
        assert cleared.stdout == "worker:other:0: crash history cleared; is already running\n"
        assert "worker:other:1: starts" in up.stdout.splitlines()
        become(hand, dict.fromkeys((*ALL, "other:1"), "healthy"))
        same, down = together(world, "scale other 2", "scale other 1")
        assert same.returncode == 0, same  # the same once more is no error
        assert "worker:other:1: is removed" in down.stdout.splitlines()
        become(hand, dict.fromkeys(ALL, "healthy"))
        assert served.logged(f"event={Event.ORDER}", "verb=scale", "scope=other", "who=olga", "count=1")
    assert hand.crashes() == []


def test_pause_and_resume_from_another_terminal(world: World) -> None:  # spec: PD-1 CL-2
    with serving(world, TWO) as served:
        hand = served.hand
        become(hand, "healthy")
        words = said(world, "pause", "do", "--reason", "the disk \x1b[31m is full", "--for", "1.5h")
        assert words == "worker:do:0: takes nothing more\nworker:do:1: takes nothing more\n"
        become(hand, {"do:0": "paused", "do:1": "paused", "other:0": "healthy"})
        (pause,) = hand.pauses()
        assert (pause.scope, pause.who, pause.reason) == ("do", "olga", "the disk \x1b[31m is full")
        assert 5_300_000 < (pause.left_ms or 0) <= 5_400_000
        shown = said(world, "status")
        line = next(line for line in shown.splitlines() if line.startswith("paused"))
        assert "do, by olga, " in line
        assert "for another 1.5 h: the disk \\x1b[31m is full" in line
        assert answered(world, "status")["pauses"][0]["who"] == "olga"
        assert {answer["text"] for answer in answered(world, "resume", "do")} == {"accepts jobs again"}
        become(hand, "healthy")
        assert [told.returncode for told in together(world, "pause", "resume do", "resume")] == [0, 0, 0]
        hand.resume()
        become(hand, "healthy")


def test_pause_without_a_node(world: World, hand: Chargehand) -> None:  # spec: PD-1 CL-2
    hand.open()
    text = "is paused; no node runs, and the next one takes no jobs either"
    assert said(world, "pause", "--reason", "later") == f"*: {text}\n"
    assert [(p.scope, p.who, p.reason, p.left_ms) for p in hand.pauses()] == [("*", "olga", "later", None)]
    assert answered(world, "pause", "do:1", "--for", "90s") == [{"component": "do:1", "text": text, "code": "paused"}]
    assert {p.scope for p in hand.pauses()} == {"*", "worker:do:1"}
    shown, resumed, again = together(world, "status", "resume", "resume")
    assert shown.returncode == 1
    assert "paused everything, by olga" in shown.stdout
    assert "paused worker:do:1, by olga" in shown.stdout
    assert "no longer paused" in resumed.stdout
    assert (again.returncode, again.stdout) == (0, "*: was not paused\n")


def test_orders_without_a_node(world: World, hand: Chargehand) -> None:  # spec: CL-3
    hand.open()
    orders = ("start", "stop do", "drain", "restart", "reset do:0", "scale do 2", "stop --json")
    for told in together(world, *orders):
        assert (told.returncode, told.stdout) == (1, "")
        assert f"no node serves {world.store}; start one with `chargehand work APP`" in told.stderr


def test_a_node_that_does_not_answer(world: World) -> None:  # spec: CL-3 PD-1
    with serving(world, TWO) as served:
        become(served.hand, "healthy")
        node = served.ready_pid()
        os.kill(node, signal.SIGSTOP)
        try:
            for told in at_once(world, "restart", "pause", "resume", "scale do 3", "logs", "status"):
                assert told.returncode == 1
                assert "answer" in told.stderr + told.stdout
            assert served.hand.pauses() == []
        finally:
            os.kill(node, signal.SIGCONT)


def test_wrong_orders_get_a_sentence(world: World) -> None:  # spec: CL-3
    known = "there is no crew or worker 'nobody'; there are: do, other, worker:do:0, worker:do:1, worker:other:0"
    wrong: list[tuple[str, str]] = [
        ("stop nobody", known),
        ("pause nobody --for 1h", known),
        ("resume nobody", known),
        ("reset do:9", "there is no crew or worker 'do:9'"),
        ("scale nobody 2", "there is no crew 'nobody'; there are: do, other"),
        ("scale do:0 2", "scale needs a crew"),
        ("scale do many", "valid integer"),
        ("scale do 1001", "must be 0 to 1000"),
        ("scale do -- -1", "greater than or equal to 0"),
        ("scale do", "count"),
        ("pause do --for soon", "expected a length such as 90s, 10m, 1.5h or 2d"),
        ("pause do --for -1h", "expected a length such as"),
        ("pause do --for 1h30m", "expected a length such as"),
        ("pause do --for 0s", "allowed is more than 0"),
        ("pause do --for 999d", "allowed"),
        ("stop do other", "other"),
        ("halt do", "halt"),
    ]
    with serving(world, TWO) as served:
        become(served.hand, "healthy")
        before = pids(served.hand)
        given = many(*(_with_store(words.split(), world) for words, _ in wrong))
        for (words, sentence), told in zip(wrong, given, strict=True):
            assert (told.returncode, told.stdout) == (2, ""), words
            assert sentence in told.stderr.replace("│", ""), words
        assert (served.hand.pauses(), pids(served.hand)) == ([], before)


def _with_store(words: list[str], world: World) -> list[str]:
    return [words[0], "--store", str(world.store), *words[1:]]


VERBS = ("start", "stop", "pause", "resume", "drain", "restart", "reset", "scale", "crashes", "logs", "status", "work")


def test_every_command_explains_itself() -> None:  # spec: CL-3
    for verb, told in zip(VERBS, many(*([verb, "-h"] for verb in VERBS)), strict=True):
        assert (told.returncode, told.stderr) == (0, "")
        assert f"chargehand {verb} [OPTIONS]" in told.stdout
        assert verb == "work" or "--store" in told.stdout


def test_resume_names_those_that_stay_given_up(world: World) -> None:  # spec: RP-6 CL-2
    crews = f"hand.crew('wrong', '{FAULTY}', environment={WRONG}); hand.crew('do', 'scripted_handlers:Doer')"
    with serving(world, crews) as served:
        become(served.hand, {"wrong:0": "failed", "do:0": "healthy"})
        lines: dict[str, Any] = dict(line.split(": ", 1) for line in said(world, "resume").splitlines())
        assert "stays given up" in lines["worker:wrong:0"]
        assert "the model's name is wrong, as told" in lines["worker:wrong:0"]
        assert "`chargehand reset worker:wrong:0` starts it" in lines["worker:wrong:0"]
        assert statuses(served.hand)["wrong:0"] == "failed"


def test_a_crew_without_workers_can_be_told_too(world: World) -> None:  # spec: PD-1 CL-3
    with serving(
        world, "hand.crew('do', 'scripted_handlers:Doer'); hand.crew('empty', 'scripted_handlers:Doer', workers=0)"
    ) as served:
        become(served.hand, {"do:0": "healthy"})
        told = command(world, "pause", "empty")
        assert [pause.scope for pause in served.hand.pauses()] == ["empty"]
        assert told.returncode == 0, told
