"""`chargehand work` waits in a small process: it starts the next node, stops, and reports as the large one does."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from world import Started, World, gone

from chargehand import Chargehand
from chargehand.errors import EXIT_STORE
from chargehand.host.alone import Traces
from chargehand.host.brief import from_bytes, to_bytes
from chargehand.log import Event
from chargehand.testing import eventually
from paths import python_path

MOST_MEMORY = 20 << 10
"""KiB, resident; the command line alone has 35 MiB, and an application adds its own."""


def resident(pid: int) -> int:
    """Returns the resident memory of a process in KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")))


# spec: SV-11
def test_it_is_small_and_starts_the_next_node_and_stops(work: Callable[..., Started], world: World) -> None:
    started = work(typed=True)
    first = started.ready()["pid"]
    assert resident(started.process.pid) < MOST_MEMORY
    shown = Path(f"/proc/{started.process.pid}/cmdline").read_bytes().split(b"\0")
    assert shown[-4:] == [b"chargehand", b"work", b"scripted_app:hand", b""]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: (started.view() or {"pid": first})["pid"] != first, what="the next node")
    do = started.hand.crew("do", "scripted_handlers:Doer")
    assert world.put(do).wait(20) == 1
    node = started.ready()["pid"]
    started.kill(signal.SIGTERM)
    assert started.end() == 0
    assert gone(node)
    text = started.log.read_text()
    for event in (Event.SETTINGS, Event.NODE_EXITED, Event.NODE_STOPPED):
        assert f"event={event}" in text


# spec: CL-3
def test_a_node_that_cannot_start_is_reported_with_its_exit_status(world: World, work: Callable[..., Started]) -> None:
    (world.folder / "spoilt.py").write_text(
        "import os\nfrom pathlib import Path\nfrom chargehand import Chargehand\n"
        f"hand = Chargehand({str(world.store)!r})\n"
        "hand.crew('do', 'scripted_handlers:Doer', workers=1)\n"
        "before = hand.open\n"
        "def then_spoilt():\n"
        "    before()\n"
        "    hand.internal.close()\n"
        "    for end in ('-wal', '-shm'):\n"
        "        Path(f'{hand.location.path}{end}').unlink(missing_ok=True)\n"
        "    hand.location.path.write_text('not a database' * 1000)\n"
        "hand.open = then_spoilt\n"
    )
    told = run_work(world, "spoilt")
    assert (told.returncode, told.stderr.splitlines()[-1][:12]) == (EXIT_STORE, "chargehand: ")
    assert "is not an SQLite file" in told.stderr.splitlines()[-1]
    assert "Traceback" not in told.stderr


def run_work(world: World, module: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", f"from chargehand.cli.work import work; work('{module}:hand')"],
        env={**os.environ, "PYTHONPATH": python_path(world.folder)}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("what", "made"),
    [
        ("threading.Thread(target=threading.Event().wait, daemon=True).start()", "threads"),
        ("atexit.register(print, 'the application ends')", "functions to be called at the exit"),
        ("lock = open('lock', 'w')", "open files"),
    ],
)
def test_an_application_that_would_miss_its_process_keeps_it(world: World, what: str, made: str) -> None:
    (world.folder / "keeps.py").write_text(
        "import atexit, os, signal, threading\nfrom scripted_app import chargehand\n"
        f"os.chdir({str(world.folder)!r})\n{what}\n"
        f"hand = chargehand({str(world.store)!r})\n"
        "hand.crew('do', 'scripted_handlers:Doer', workers=1)\n"
        "hand.host = lambda give_up: os._exit(42)\n"
    )
    told = run_work(world, "keeps")
    assert (told.returncode, f"made={made}" in told.stderr.replace('"', "")) == (42, True)


@contextmanager
def handler_of(number: int) -> Generator[None]:
    before = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_what_an_application_has_made_is_seen() -> None:
    before = Traces.now()
    assert Traces.now().left(before) is None
    with handler_of(signal.SIGUSR2):
        assert Traces.now().left(before) == "signal handlers"
    with subprocess.Popen(["sleep", "60"]) as child:
        assert Traces.now().left(before) == "processes"
        child.kill()
    assert Traces.now().left(before) is None


def test_what_a_host_is_told_survives_the_way(hand: Chargehand) -> None:
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    sent = hand.brief()
    found = from_bytes(to_bytes(sent))
    assert found[1:] == sent[1:]
    same = ("path", "node", "lives", "lock", "mark", "socket")
    assert [getattr(found.store, name) for name in same] == [getattr(sent.store, name) for name in same]
    assert str(found.store) == str(sent.store)
