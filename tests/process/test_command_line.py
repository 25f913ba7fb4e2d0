"""The command line as an operator uses it: another terminal, JSON, exit statuses, sentences."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from terminal import answered, chargehand
from world import Started, World

from chargehand import Chargehand
from chargehand.log import Event
from chargehand.testing import eventually

Work = Callable[..., Started]


def test_everything_works_from_another_terminal(world: World, work: Work) -> None:  # spec: CL-2 CL-3
    started = work(typed=True)
    started.ready()
    here: dict[str, Any] = {"cwd": world.folder}  # no --app, --store or CHARGEHAND_URL: the store is in this folder
    done = answered("jobs", "enqueue", "do", json.dumps({"ledger": world.ledger, "result": 5}), "--wait", "20", **here)
    assert done["result"] == 5
    (job,) = answered("jobs", "list", "--json", **here)
    assert (job["id"], job["state"], job["result"]) == (done["id"], "done", 5)
    shown = answered("jobs", "show", done["id"], "--json", **here)
    assert [a["outcome"] for a in shown["attempt_history"]] == ["done"]
    status = answered("status", "--json", "--store", str(world.store))
    assert {w["component"] for w in status["node"]["workers"]} == {"worker:do:0", "worker:do:1", "worker:other:0"}
    assert status["queues"][0]["done"] == 1
    for words in (["status"], ["jobs", "list"], ["jobs", "show", done["id"]]):
        told = chargehand(*words, **here)
        assert told.returncode == 0
        assert "do" in told.stdout
    piped = chargehand("jobs", "enqueue", "do", "-", stdin=json.dumps({"ledger": world.ledger}), **here)
    assert piped.returncode == 0
    assert len(piped.stdout.strip()) == 32


def test_status_without_a_node_says_so(world: World, hand: Chargehand) -> None:
    hand.crew("do", "scripted_handlers:Doer").enqueue({})
    told = chargehand("status", cwd=world.folder)
    assert told.returncode == 1
    assert "chargehand work APP" in told.stdout


COMMANDS = ["", "init", "serve", "work", "status", "run", "check", "wake", "recurring", "claims", "claims release"]
JOBS = ["jobs", *(f"jobs {word}" for word in ("enqueue", "list", "show", "retry", "cancel"))]


@pytest.mark.parametrize("words", [*COMMANDS, *JOBS])
def test_every_command_has_help(words: str) -> None:  # spec: CL-3
    told = chargehand(*words.split(), "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "Usage" in told.stdout


def test_ctrl_c_ends_everything_in_order(world: World, work: Work) -> None:  # spec: WP-6
    started = work(typed=True)
    started.ready()
    do = started.hand.crew("do", "scripted_handlers:Doer")
    gate = world.gate()
    ref = world.put(do, gate)
    world.started(ref)
    started.kill(signal.SIGINT)
    eventually(lambda: (started.view() or {}).get("stopping"))
    gate.touch()
    assert started.end() == 0
    assert ref.job().state == "done"
    assert f"event={Event.NODE_STOPPED}" in started.log.read_text()


def test_a_second_ctrl_c_does_not_wait(world: World, work: Work) -> None:  # spec: WP-6
    started = work(typed=True)
    started.ready()
    gate = world.gate()
    ref = world.put(started.hand.crew("do", "scripted_handlers:Doer"), gate)
    world.started(ref)
    started.kill(signal.SIGINT)
    eventually(lambda: (started.view() or {}).get("stopping"))
    started.kill(signal.SIGINT)
    started.end()
    gate.touch()
    work(typed=True)
    assert ref.wait(20) == 1
    assert ref.job().interruptions == 1


BAD: list[tuple[list[str], int, str]] = [
    (
        ["jobs", "enqueue", "nobody", "1", "--app", "scripted_app:hand"],
        2,
        "no crew 'nobody'; there are: do, other",
    ),
    (["jobs", "enqueue", "do", "{a:", "--app", "scripted_app:hand"], 2, "the payload is not JSON"),
    (["jobs", "enqueue", "other", "7", "--app", "scripted_app:hand"], 2, "expected dict, got int"),
    (["jobs", "enqueue", "do", "NaN", "--app", "scripted_app:hand"], 2, "JSON"),
    (
        ["jobs", "enqueue", "do", "1", "--delay", "-5", "--app", "scripted_app:hand"],
        2,
        "delay is -5 s; must be 0",
    ),
    (["jobs", "enqueue", "do", "1", "--priority", "99999999", "--app", "scripted_app:hand"], 2, "priority is 99999999"),
    (["jobs", "enqueue", "do", "1", "--key", "k" * 300, "--app", "scripted_app:hand"], 2, "key has 300 characters"),
    (["jobs", "show", "nothing", "--app", "scripted_app:hand"], 1, "there is no job 'nothing'"),
    (["jobs", "list", "--state", "lost", "--app", "scripted_app:hand"], 2, "lost"),
    (["work", "no_such_module:hand"], 2, "there is no module 'no_such_module' in"),
    (["work", "scripted_handlers:nothing"], 2, "has no name 'nothing'; its Chargehand objects: none"),
    (["work", "json"], 2, "does not have exactly one Chargehand object; its Chargehand objects: none"),
    (["work", "scripted_app:hand", "--log-level", "LOUD"], 2, "allowed are DEBUG, INFO, WARNING, ERROR"),
    (["status", "--store", "mysql://root@localhost/jobs"], 2, "'mysql' is not supported"),
    (["status", "--store", "/nowhere/chargehand.db"], 4, "there is no store at /nowhere/chargehand.db"),
    (["status"], 4, "there is no chargehand.db in"),
]


@pytest.mark.parametrize(("words", "status", "sentence"), BAD, ids=[" ".join(words)[:50] for words, *_ in BAD])
def test_bad_input_gets_a_sentence_and_an_exit_status(
    world: World, words: list[str], status: int, sentence: str
) -> None:
    environment = {"CHARGEHAND_URL": str(world.store)} if words != ["status"] else {}
    told = chargehand(*words, cwd=world.folder, **environment)
    assert (told.returncode, told.stdout) == (status, "")
    assert sentence in told.stderr.replace("\n│", "").replace("  ", " ")
    assert "Traceback" not in told.stderr


def test_a_payload_that_is_too_large(world: World) -> None:  # spec: SE-3
    text = json.dumps("x" * (1 << 20))
    words = ["jobs", "enqueue", "do", "-", "--app", "scripted_app:hand"]
    told = chargehand(*words, stdin=text, CHARGEHAND_URL=str(world.store))
    assert told.returncode == 2
    assert "1,048,578 bytes of JSON; the maximum is 1,048,576" in told.stderr


def spoil_with_text(path: Path) -> None:
    path.write_text("this was a shopping list\n" * 400)


def spoil_with_a_newer_schema(path: Path) -> None:
    hand = Chargehand(path)
    with hand.transaction() as tx:
        tx.execute("INSERT INTO chargehand_schema VALUES (999, '', 0)")
    hand.close()


def spoil_with_a_folder(path: Path) -> None:
    path.mkdir()


SPOILT = [
    (spoil_with_text, "is not a database that Chargehand can use"),
    (spoil_with_a_newer_schema, "was made by a newer Chargehand (schema 999"),
    (spoil_with_a_folder, "is a folder, not a store"),
]


@pytest.mark.parametrize(("spoil", "sentence"), SPOILT, ids=[s[0].__name__ for s in SPOILT])
@pytest.mark.parametrize("words", ["work scripted_app:hand", "jobs enqueue do -a scripted_app:hand", "status"])
def test_a_store_that_cannot_be_used(  # spec: ST-2 ST-4
    world: World, spoil: Callable[[Path], None], sentence: str, words: str
) -> None:
    spoil(world.store)
    before = world.store.read_bytes() if world.store.is_file() else None
    told = chargehand(*words.split(), cwd=world.folder, CHARGEHAND_URL=str(world.store))
    assert told.returncode == 4
    assert sentence in told.stderr
    assert "Traceback" not in told.stderr
    assert before == (world.store.read_bytes() if world.store.is_file() else None)


def test_a_handler_that_cannot_be_imported(world: World, hand: Chargehand) -> None:  # spec: RP-5
    missing = hand.crew("missing", "no_such_module:Nothing", workers=1)
    broken = hand.crew("broken", "scripted_handlers:NoSetUp", workers=1)
    wrong = hand.crew("wrong", "json:JSONDecoder", workers=1)
    refs = [crew.enqueue({}) for crew in (missing, broken, wrong)]

    def reasons() -> dict[str, tuple[str, str]]:
        return {w["crew"]: (w["status"], w["text"] or "") for w in (hand.status() or {"workers": []})["workers"]}

    with hand.running():
        eventually(lambda: reasons().get("missing", ("",))[0] == reasons().get("wrong", ("",))[0] == "failed")
        eventually(lambda: "the model file is missing" in reasons()["broken"][1])
        assert "handler 'no_such_module:Nothing' cannot be imported" in reasons()["missing"][1]
        assert "not a class derived from chargehand.Handler" in reasons()["wrong"][1]
    assert [ref.job().state for ref in refs] == ["queued"] * 3  # nothing is lost: it waits for a fixed handler


def test_a_read_only_disk(world: World) -> None:  # spec: ST-2
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: needs root, to mount a file system read-only")
    disk = world.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700,ro", "tmpfs", str(disk)], check=True)
    try:
        told = chargehand("work", "scripted_app:hand", CHARGEHAND_URL=str(disk / "chargehand.db"))
        assert told.returncode == 4
        assert "Read-only file system" in told.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)
