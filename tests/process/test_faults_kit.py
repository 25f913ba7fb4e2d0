"""The fault kit itself does what it says, without a node: in a process of its own, with a stand-in for the worker."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chargehand import ConfigurationError, GiveUp, Job, Retry, UnrecoverableError
from chargehand.processes import proc
from chargehand.testing import eventually
from chargehand.testing.faults import FAULTS, Faulty
from chargehand.testing.faults_loading import VARIABLE

PROGRAM = """
import faulthandler, json, os, resource, signal, sys, threading, time
from chargehand import clock
from chargehand.handler import Job
from chargehand.worker.pulse import resident
from chargehand.testing.faults import Faulty

class Sent:
    def __init__(self, into):
        self.into, self._lock = into, threading.Lock()
    def send(self, data):
        said.append([self.into, data.decode("latin-1")])

class Worker:
    outlet, _send = Sent("pulse"), Sent("work").send

class JobContext:
    worker = Worker
    def progress(self, *told):
        sys.stderr.write("progress\\n")
        sys.stderr.flush()

said, beats, over = [], [clock.monotonic()], threading.Event()

def beat():
    while not over.wait(0.01):
        with Worker.outlet._lock:
            beats.append(clock.monotonic())
            sys.stderr.write("." if dots else "")
            sys.stderr.flush()

assert "msgspec" not in sys.modules and "ctypes" not in sys.modules
dots = "dots" in sys.argv
faulthandler.register(signal.SIGUSR1, all_threads=True)
if "dump" in sys.argv:
    faulthandler.dump_traceback_later(0.05, repeat=True)
handler = Faulty()
handler.ask_for_time = lambda seconds: said.append(["more time", seconds])
handler.set_up()
before, cpu = resident(), time.process_time()
threading.Thread(target=beat, daemon=True).start()
job = Job(id="j1", queue="q", payload=json.loads(sys.argv[1]), label=None, attempt=1, crashes=0, context=JobContext())
try:
    result, error = handler.perform(job), None
except BaseException as raised:
    result, error = None, repr(raised)
beats.append(clock.monotonic())
over.set()
told = {
    "result": result, "error": error, "said": said, "cpu": time.process_time() - cpu, "beats": len(beats),
    "gap": max(b - a for a, b in zip(beats, beats[1:])), "grown": resident() - before,
    "threads": threading.active_count(), "limit": resource.getrlimit(resource.RLIMIT_AS)[0],
    "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
}
sys.stdout.write(json.dumps(told))
sys.stdout.flush()
os._exit(0)
"""


class Kit:
    """Processes that perform one payload each."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "ledger"
        self.output, self.errors = folder / "output", folder / "errors"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, set_up: str = "", **payload: Any) -> "subprocess.Popen[bytes]":
        payload["ledger"] = str(self.ledger)
        with open(self.output, "wb") as output, open(self.errors, "wb") as errors:  # no pipes: children may keep them
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(payload), *arguments],
                stdout=output, stderr=errors, env={**os.environ, VARIABLE: set_up},
            )  # fmt: skip
        self._started.append(process)
        return process

    def told(self, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
        """Wait for its end; what it says of itself."""
        assert process.wait(20) == 0, self.errors.read_text()
        return json.loads(self.output.read_text().splitlines()[-1])

    def does(self, **payload: Any) -> dict[str, Any]:
        return self.told(self.start(**payload))

    def code(self, **payload: Any) -> int:
        return self.start(**payload).wait(20)

    def lines(self, kind: str) -> list[list[str]]:
        """The ledger's lines of one kind, split."""
        text = self.ledger.read_text() if self.ledger.exists() else ""
        return [words[1:] for words in (line.split() for line in text.splitlines()) if words[0] == kind]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
        for _, pid in self.lines("child"):
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.close()


def perform(**payload: Any) -> Any:
    """In this process, for what harms nobody."""
    context: Any = None
    job = Job(id="j1", queue="q", payload=payload, label=None, attempt=1, crashes=0, context=context)
    return Faulty().perform(job)


def test_without_a_fault_it_works(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert perform(result=[1], ledger=str(ledger)) == [1]
    assert ledger.read_text() == f"start j1 {os.getpid()}\nend j1 {os.getpid()}\n"


def test_every_fault_has_one_sentence() -> None:
    assert all(text[0].isupper() and text.endswith(".") and ". " not in text for text in FAULTS.values())


@pytest.mark.parametrize(
    ("payload", "error", "words"),
    [
        ({"fault": "raise", "text": "no such note"}, RuntimeError, "no such note"),
        ({"fault": "retry", "after": 3}, Retry, "retry in 3 s"),
        ({"fault": "give up", "reason": "no such song"}, GiveUp, "no such song"),
        ({"fault": "sys.exit", "code": 7}, SystemExit, "7"),
        ({"fault": "sing"}, GiveUp, "no fault 'sing'; there are: raise, retry, give up"),
        ({"fault": "garbage", "into": "the wind"}, GiveUp, "must be one of: work, pulse"),
        ({"fault": "children", "kinds": ["nice"]}, GiveUp, "must be one of: plain, session, daemon"),
        ({"fault": "nap", "seconds": 0, "then": {"fault": "raise", "text": "next"}}, RuntimeError, "next"),
    ],
)
def test_it_raises(payload: dict[str, Any], error: type[BaseException], words: str) -> None:
    with pytest.raises(error, match=words):
        perform(**payload)


@pytest.mark.parametrize(
    ("fault", "code"),
    [("segfault", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL), ("exit", 9)],
)
def test_it_ends_its_process(kit: Kit, fault: str, code: int) -> None:
    assert kit.code(fault=fault, code=9) == code
    assert [len(kit.lines(kind)) for kind in ("start", "end")] == [1, 0]


@pytest.mark.parametrize(
    ("fault", "beats"), [("nap", True), ("spin", True), ("sleep in c", False), ("burn in c", False)]
)
def test_it_takes_its_time(kit: Kit, fault: str, beats: bool) -> None:
    told = kit.does(fault=fault, seconds=0.25)
    if beats:
        assert told["beats"] >= 5
    else:
        assert told["gap"] >= 0.23
    if fault in ("nap", "sleep in c"):
        assert told["cpu"] <= 0.1
    assert len(kit.lines("end")) == 1


@pytest.mark.parametrize("fault", ["spin", "burn in c"])
def test_it_uses_cpu(kit: Kit, fault: str) -> None:
    process = kit.start(fault=fault)
    eventually(lambda: (found := proc.stat(process.pid)) and found.cpu >= 0.35)


def test_no_signal_ends_a_sleep_in_c(kit: Kit) -> None:
    process = kit.start(fault="sleep in c")
    eventually(lambda: kit.lines("start"))

    def seen_twice() -> bool:  # so the first of the signals that found it there did not end it
        process.send_signal(signal.SIGUSR1)
        return kit.errors.read_text().count("in sleep_in_c") >= 2

    eventually(seen_twice)
    assert not kit.lines("end")


def test_a_deadlock_shows_in_the_stacks(kit: Kit) -> None:
    process = kit.start("dots", fault="deadlock")

    def dots() -> int:
        return kit.errors.read_text().count(".")

    eventually(lambda: kit.lines("start"))
    eventually(lambda: (found := proc.stat(process.pid)) and found.threads == 3 and dots() > 5)
    before, count = proc.stat(process.pid), dots()
    eventually(lambda: dots() > count + 20)
    after = proc.stat(process.pid)
    assert before
    assert after
    assert after.cpu - before.cpu <= 0.1
    process.send_signal(signal.SIGUSR1)
    eventually(lambda: kit.errors.read_text().count("in wait_for_a_lock_that_never_comes") == 2)


def test_it_stops_and_goes_on(kit: Kit) -> None:
    process = kit.start(fault="stop", result="went on")
    eventually(lambda: (found := proc.stat(process.pid)) and found.state == "T")
    process.send_signal(signal.SIGCONT)
    assert kit.told(process)["result"] == "went on"


def test_memory_runs_out_and_comes_back(kit: Kit) -> None:
    told = kit.does(fault="memory", bytes=32 << 20)
    assert told["error"] == "MemoryError()"
    assert told["limit"] == -1
    assert told["grown"] < 16 << 20


def test_a_hog_gives_back_what_a_leak_keeps(kit: Kit) -> None:
    process = kit.start(fault="hog", bytes=64 << 20, seconds=60)
    statm = Path(f"/proc/{process.pid}/statm")
    eventually(lambda: int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > 64 << 20)
    assert kit.does(fault="hog", bytes=64 << 20)["grown"] < 16 << 20
    assert kit.does(fault="leak", bytes=64 << 20)["grown"] > 60 << 20


def test_it_leaves_processes(kit: Kit) -> None:
    told = kit.does(fault="children", then={"fault": "fork"})
    assert told["error"] is None
    children = {kind: int(pid) for kind, pid in kit.lines("child")}
    found = {kind: proc.stat(pid) for kind, pid in children.items()}
    own = {kind: bool(seen and seen.session != os.getsid(0)) for kind, seen in found.items()}
    assert own == {"plain": False, "session": True, "daemon": True, "fork": False}
    assert not any(seen is None or seen.dead for seen in found.values())


def test_it_leaves_threads(kit: Kit) -> None:
    assert kit.does(fault="threads", count=3)["threads"] >= 4


def test_it_says_what_it_should_not(kit: Kit) -> None:
    garbage = {"fault": "garbage", "into": "pulse", "lines": 2}
    told = kit.does(fault="garbage", into="work", then={**garbage, "then": {"fault": "half a frame", "seconds": 0}})
    into, said = zip(*told["said"], strict=True)
    assert into == ("work", "pulse", "work")
    assert [text.count("\n") for text in said] == [5, 2, 0]
    assert said[2].startswith('DONE|{"id":')


def test_it_is_silent(kit: Kit) -> None:
    told = kit.does(fault="silent", seconds=0.2)
    assert told["gap"] >= 0.19
    assert told["cpu"] <= 0.1


def test_it_does_not_hear_sigterm(kit: Kit) -> None:
    process = kit.start(fault="ignore sigterm")
    eventually(lambda: kit.lines("ignoring"))
    process.terminate()
    process.send_signal(signal.SIGUSR1)
    eventually(lambda: "in _ignore_sigterm" in kit.errors.read_text(), what="stacks, though it was told to end")
    assert kit.does(fault="ignore sigterm", seconds=0)["sigterm"], "afterwards it hears it again"


def test_it_writes_lines(kit: Kit) -> None:
    assert kit.code(fault="output", lines=2) == 0
    assert kit.output.read_text().startswith("line 0 to stdout\nline 1 to stdout\n")
    assert kit.errors.read_text().splitlines() == [
        f"line {number} to {where}" for number in range(2) for where in ("stderr", "the log")
    ]


def test_it_waits_at_a_gate(kit: Kit, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    process = kit.start(fault="wait", gate=str(gate))
    eventually(lambda: kit.errors.read_text().count("progress") > 2)
    gate.touch()
    assert kit.told(process)["error"] is None


@pytest.mark.parametrize(
    ("set_up", "error", "words"),
    [
        ("raise", RuntimeError, "the model file"),
        ("configuration", ConfigurationError, "the model's name"),
        ("unrecoverable", UnrecoverableError, "this machine"),
        ("slow", ConfigurationError, "'slow'; must be one of: slow:SECONDS"),
    ],
)
def test_its_loading_raises(
    monkeypatch: pytest.MonkeyPatch, set_up: str, error: type[BaseException], words: str
) -> None:
    monkeypatch.setenv(VARIABLE, set_up)
    with pytest.raises(error, match=words):
        Faulty().set_up()


def test_its_loading_ends_its_process(kit: Kit, tmp_path: Path) -> None:
    assert kit.code(set_up="segfault") == -signal.SIGSEGV
    once = f"once:{tmp_path / 'once'}:exit:6"
    assert [kit.code(set_up=once), kit.code(set_up=once)] == [6, 0]


def test_its_loading_takes_its_time(kit: Kit) -> None:
    assert kit.does(set_up="slow:0.01:5")["said"] == [["more time", 5.0]]
    process = kit.start("dump", set_up="forever")

    def asleep() -> bool:
        text = kit.errors.read_text()
        return "in misload" in text and "in set_up" in text

    eventually(asleep)
    assert process.poll() is None
