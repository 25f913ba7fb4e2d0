"""What the tests of orders share: an application written by a test, a terminal."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import warm
from scripted_app import chargehand
from world import WORK, Started, World

from chargehand import Chargehand, clock
from chargehand.testing import eventually
from paths import python_path

FAULTY = "chargehand.testing.faults:Faulty"
WRONG = {"CHARGEHAND_FAULT_SET_UP": "configuration"}
Told = subprocess.CompletedProcess[str]


class Serving(Started):
    """`chargehand work` on an application whose crews the test writes down."""

    def __init__(self, world: World, crews: str, settings: str, environment: dict[str, str]) -> None:
        text = f"from scripted_app import *\nhand = chargehand('unused'{settings and ', ' + settings})\n{crews}\n"
        # Named by its text: another one of the same size might not be compiled, and a new module is a deployment.
        name = f"application_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        (world.folder / f"{name}.py").write_text(text)
        folders = python_path(world.folder)
        env = {**os.environ, "CHARGEHAND_URL": str(world.store), "PYTHONPATH": folders, **environment}
        self.log = world.folder / f"log-{os.urandom(4).hex()}"
        command = [sys.executable, "-c", WORK.format(f"{name}:hand")]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=env, stderr=log, stdout=log)
        self.hand = chargehand(world.store)

    def logged(self, *words: str) -> bool:
        """Whether one line of the log has all these words."""
        return any(all(word in line for word in words) for line in self.log.read_text().splitlines())

    def die_with_the_node(self) -> None:
        """kill -9 of host and node, so that neither can act on the other's death."""
        pids = [self.process.pid, self.ready_pid()]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
        self.end()

    def ready_pid(self) -> int:
        """The node's pid, as soon as it answers."""
        return int(eventually(lambda: (self.view() or {}).get("pid"), what=self.log.read_text()) or 0)


@contextmanager
def serving(world: World, crews: str, settings: str = "", **environment: str) -> Generator[Serving]:
    """Start it; at the end it is stopped in order, if it still runs."""
    started = Serving(world, crews, settings, environment)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill(signal.SIGTERM)
            started.end()
        started.hand.close()


def begin(*words: str) -> "subprocess.Popen[str]":
    """The command line, in another process."""
    return _python("-m", "chargehand", *words)


def _environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key != "CHARGEHAND_URL"}
    return env | {"PYTHONPATH": python_path(), "COLUMNS": "200", "LOGNAME": "olga"}


def _python(*words: str) -> "subprocess.Popen[str]":
    env = _environment()
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen([sys.executable, *words], env=env, stdin=nothing, stdout=pipe, stderr=pipe, text=True)


def end(process: "subprocess.Popen[str]") -> Told:
    """Wait for it. Whatever it says, a traceback is never right."""
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return Told(process.args, process.returncode, out, err)


def command(world: World, *words: str) -> Told:
    """One command about the world's store."""
    return many([*words, "--store", str(world.store)])[0]


def said(world: World, *words: str) -> str:
    """What a command that goes well prints."""
    told = command(world, *words)
    assert (told.returncode, told.stderr) == (0, ""), told
    return told.stdout


def answered(world: World, *words: str) -> Any:
    """The same, as data."""
    return json.loads(said(world, *words, "--json"))


def many(*commands: list[str]) -> list[Told]:
    """Several commands, one after the other."""
    answers = [warm.run(words, None, _environment(), "") for words in commands]
    assert not [answer for answer in answers if "Traceback" in answer.stderr]
    return answers


def together(world: World, *commands: str) -> list[Told]:
    """The same, about the world's store."""
    return many(*([*words.split(), "--store", str(world.store)] for words in commands))


def at_once(world: World, *commands: str) -> list[Told]:
    """The same, at the same time."""
    with ThreadPoolExecutor(len(commands)) as aside:
        return [told for (told,) in aside.map(lambda words: together(world, words), commands)]


def workers(hand: Chargehand) -> dict[str, dict[str, Any]]:
    """The node's workers, by `crew:index`; nothing while there is no node."""
    return {w["component"].removeprefix("worker:"): w for w in (hand.status() or {"workers": []})["workers"]}


def statuses(hand: Chargehand) -> dict[str, str]:
    return {name: worker["status"] for name, worker in workers(hand).items()}


def become(hand: Chargehand, wanted: Mapping[str, str] | str, timeout: float = 30.0) -> dict[str, dict[str, Any]]:
    """Wait until these (or, of one word, all) workers have these statuses; the workers."""

    def reached() -> bool:
        found = statuses(hand)
        return bool(found) and (set(found.values()) == {wanted} if isinstance(wanted, str) else wanted == found)

    eventually(reached, timeout, what=f"{wanted}; last: {statuses(hand)}")
    return workers(hand)


def pids(hand: Chargehand) -> dict[str, int]:
    return {name: worker["pid"] for name, worker in workers(hand).items()}


def texts(answers: Any) -> dict[str, str]:
    """Answers by worker."""
    return {answer.component: answer.text for answer in answers}


def stays(condition: Callable[[], Any], seconds: float) -> None:
    """The condition holds for so long: for what must not happen there is no event to wait for."""
    until = clock.monotonic() + seconds

    def over() -> bool:
        assert condition()
        return clock.monotonic() >= until

    eventually(over, seconds + 20)
