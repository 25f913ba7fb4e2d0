"""Live state without HTTP: in Python, in an event loop, on the command line; with a node, and without one."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from listening import Table
from scripted_app import chargehand as make
from terminal import answered, chargehand, environment_of
from world import Started, World

from chargehand import Chargehand, JobNotFound
from chargehand.errors import TopicError
from chargehand.live.bodies import JobBody, WorkerBody
from chargehand.live.broker import Broker, Wire
from chargehand.model.job import State
from chargehand.model.topic import parse
from chargehand.node.loop import Channel, Loop
from chargehand.node.subscribers import Subscribers
from chargehand.protocol.control import Call
from chargehand.protocol.frame import Decoder, Frame


class Subscriber(Table):
    """Somebody in another thread who follows `hand.subscribe`."""

    def __init__(self, hand: Chargehand, *topics: str) -> None:
        super().__init__()
        self.over = False
        self.events = hand.subscribe(*topics)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        for event in self.events:
            self.hear(event)
            if self.over:
                break
        self.events.close()

    def end(self, nudge: Callable[[], Any]) -> None:
        """It looks up with the next event."""
        self.over = True
        nudge()
        self.thread.join(20)
        assert not self.thread.is_alive()


async def follow(hand: Chargehand, job_id: str) -> list[str]:
    ref = hand.crews["do"].ref(job_id)
    return [event["job"]["state"] async for event in ref.events()]


def test_jobs_are_followed_whoever_changes_them(  # spec: WK-5 EV-2 EV-3
    hand: Chargehand, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The node does not poll: each change by another process must reach it as a hint.
    (tmp_path / "sitecustomize.py").write_text("import chargehand.node.live as live\nlive.POLL = 3600.0\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    do = hand.crew("do", "scripted_handlers:Doer", workers=1, max_attempts=1)
    own = hand.crew("own", "scripted_handlers:Settler", workers=1, transactional=True)
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT, worker INTEGER)")
    with pytest.raises(TopicError):
        hand.subscribe("nonsense")
    old = world.put(do, options={"label": "from before"})
    with hand.running():
        assert old.wait(20) is not None
        seen = Subscriber(hand, "queue:jobs", "queue:*:status", "system:health")
        seen.wait(old.id, state="done", label="from before")
        gate = world.gate()
        held = world.put(do, gate, options={"tags": ["now", "held"]})
        waiting = world.put(do, options={"delay": 60, "tags": ["later"]})
        seen.wait(held.id, state="running", worker="worker:do:0", tags=["now", "held"])
        seen.wait(waiting.id, state="queued", worker=None, tags=["later"])
        seen.wait("queue:do:status", queued=1, future=1, running=1, done=1)
        through_the_node = do.new_job({"ledger": world.ledger}, delay=60, tags=["direct"])
        assert [made.created for made in hand.internal.calls.enqueue([through_the_node])] == [True]
        seen.wait(through_the_node.id, state="queued", tags=["direct"])
        hand.cancel(waiting.id, through_the_node.id)  # at once: nobody has it
        seen.wait(waiting.id, state="cancelled")
        settled = own.enqueue({"ledger": world.ledger, "title": "x"})
        seen.wait(settled.id, state="done")  # in the worker's own transaction
        many = do.enqueue_many([{"ledger": world.ledger, "end": "raise"}] * 40)  # straight into the store
        seen.wait(many[0].id, worker=None)  # it waits, in the store or in the node
        states = asyncio.run(_while_followed(hand, held.id, gate))
        assert (states[0], states[-1]) == ("running", "done")
        assert asyncio.run(follow(hand, held.id)) == ["done"]  # one that has ended is told once
        assert asyncio.run(_one_after_the_other(hand, held.id)) == [["done"], ["done"]]
        with pytest.raises(JobNotFound):
            asyncio.run(follow(hand, "nobody"))
        for ref in many:
            seen.wait(ref.id, state="failed", reason="raised")
        hand.pause("do")
        hand.retry(many[0].id)  # in the store, from a process that is not the node
        seen.wait(many[0].id, state="queued", attempts=0, error=None)
        jobs = [event for event in seen.heard if event["type"] == "job_update"]
        assert {event["topic"] for event in jobs} == {"queue:jobs"}
        seen.end(lambda: hand.resume("do"))


def test_a_worker_that_exited_on_purpose_is_shown_so_to_subscribers(hand: Chargehand) -> None:  # spec: SV-4 EV-2
    hand.crew("rest", "scripted_handlers:Doer", workers=1, idle_exit=0.3)
    hand.crew("do", "scripted_handlers:Doer", workers=1)
    with hand.running():
        seen = Subscriber(hand, "worker:*:status", "system:health")
        seen.wait("worker:rest:0", status="asleep", reason="idle", pid=None)
        seen.wait("system:health", status="healthy")
        hand.stop("do")
        seen.wait("worker:do:0", status="stopped", pid=None)
        seen.end(lambda: hand.start("do"))


async def _one_after_the_other(hand: Chargehand, job_id: str) -> list[list[str]]:
    """Follows a job again right after the last follower has left: the connection to the node is still open."""
    async with asyncio.timeout(20):
        return [await follow(hand, job_id), await follow(hand, job_id)]


async def _while_followed(hand: Chargehand, job_id: str, gate: Path) -> list[str]:
    """Several follow one job; the gate opens when all of them have heard of it."""
    feed, states, others = hand.internal.feed(), list[str](), list[asyncio.Future[list[str]]]()
    async with feed.watch(parse([f"job:{job_id}"])) as watcher:
        async for event in watcher.events():
            states.append(event["job"]["state"])
            if len(states) == 1:
                others = [asyncio.ensure_future(follow(hand, job_id)) for _ in range(3)]
                gate.touch()
            if states[-1] == "done":
                break
    assert [told[-1] for told in await asyncio.gather(*others)] == ["done"] * 3
    return states


def test_without_a_node_the_store_is_read_and_a_node_is_found_again(
    world: World, work: Callable[..., Started]
) -> None:  # spec: EV-6 EV-5
    hand = make(world.store)
    do = hand.crew("do", "scripted_handlers:Doer")
    early = world.put(do)
    seen = Subscriber(hand, "*")
    health = seen.wait("system:health", status="error")
    assert health["errors"][0].startswith("no node runs")
    seen.wait(early.id, state="queued")
    seen.wait("queue:do:status", queued=1, rate=0.0)
    late = world.put(do)
    seen.wait(late.id, state="queued")  # somebody wrote it while nobody ran
    started = work()
    seen.wait(early.id, state="done")
    seen.wait("worker:do:1", status="healthy")
    seen.wait("system:health", status="healthy", errors=[])
    assert "resync" in [event["type"] for event in seen.heard]
    told = chargehand("events", "--json", "-n", "3", "--store", str(world.store))
    assert (told.returncode, len(told.stdout.splitlines())) == (0, 3)
    assert all(json.loads(line)["timestamp_ms"] for line in told.stdout.splitlines())
    lines = chargehand("events", "worker:do:*:status", "-n", "2", "--store", str(world.store)).stdout.splitlines()
    assert sorted(line.split(" ", 2)[2] for line in lines) == ["worker:do:0 is healthy", "worker:do:1 is healthy"]
    shown = answered("top", "--json", "--store", str(world.store))
    assert (shown["health"]["status"], len(shown["workers"])) == ("healthy", 3)
    assert [queue["name"] for queue in shown["queues"]] == [None, "do", "other"]
    table = chargehand("top", "--store", str(world.store))
    assert table.returncode == 0
    assert "worker:other:0" in table.stdout
    assert _at_a_terminal(world) == 0
    started.process.terminate()
    started.end()
    seen.wait("system:health", status="error")
    gone = chargehand("top", "--store", str(world.store))
    assert (gone.returncode, "no node runs" in gone.stdout) == (1, True)
    seen.end(lambda: world.put(do))


def _at_a_terminal(world: World) -> int:
    """`top` as a person has it: q ends it, and the terminal is as it was."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "chargehand", "top", "--store", str(world.store)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment_of(TERM="xterm"), start_new_session=True
    )
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # the end of a terminal whose last user has gone
        while True:
            seen += os.read(ours, 1 << 16)
            if b"worker:do:1" in seen:
                os.write(ours, b"q")
    os.close(ours)
    return process.wait(30)


class Source:
    """Just as much of a node's live state as its socket needs."""

    looked = 0

    def __init__(self) -> None:
        self.broker = Broker("life")

    def watch(self, patterns: Any, now: float) -> int:
        return 0


def test_a_watcher_of_the_node_that_does_not_read_costs_little() -> None:  # spec: EV-4
    loop, source = Loop(), Source()
    outlets = Subscribers(source)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    channel = Channel(loop, ours, 1 << 20, lambda *_: None, lambda _: None)
    outlets.subscribe(channel, Call(call=7, topics=("*",)))
    outlets.send()
    kept = 0
    for value in range(20_000):
        for number in range(3):
            name = f"worker:a:{number}:status"
            body = WorkerBody(component=f"worker:a:{number}", node="n", jobs=value, text="x" * 200)
            source.broker.publish(name, name, "worker", body, value)
        done = JobBody(id=str(value), queue="q", state=State.DONE)
        source.broker.publish(f"job:{value}", f"job:{value}", "job", done, value)
        outlets.send()
        kept = max(kept, len(channel._unsent))
    assert channel.clogged
    assert kept < 1 << 20
    image, decoder, known = Broker("life"), Decoder(1 << 22), False
    theirs.settimeout(10)
    while image.version < source.broker.version:
        for frame in decoder.feed(theirs.recv(1 << 16)):
            assert isinstance(frame, Frame)
            known |= frame.kind == "KNOWN"
            for wire in json.loads(frame.body).get("events", ()):
                image.accept(Wire(*wire[:7], json.dumps(wire[7]).encode()).event())  # type: ignore[arg-type]
        loop.handle(loop.wait(0))
        outlets.send()
    assert known
    everything = parse(["*"])
    newest = {event.key: event.version for event in source.broker.state(everything)}
    assert {event.key: event.version for event in image.state(everything) if event.key in newest} == newest
    outlets.unsubscribe(channel)
    channel.close()
    theirs.close()
