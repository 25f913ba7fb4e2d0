"""Whoever is told late, little by little or not for a while ends up right; and costs a bounded amount of memory."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.live import broker
from chargehand.live.bodies import JobBody, JobIdentity, WorkerIdentity
from chargehand.live.broker import Broker, Subscription, Wire
from chargehand.model.job import State
from chargehand.model.topic import event_id, parse

EVERYTHING = parse(["*"])
GONE = WorkerIdentity(component="worker:a:0", crew="a", index=0, node="n")


class Thing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Any body: the broker only compares and encodes it."""

    status: str = ""
    queued: int = 0
    wait: int = 0
    value: int = 0


def publish(source: Broker, name: str, /, **body: Any) -> bool:
    kind = name.partition(":")[0]
    return source.publish(name, name, kind, Thing(**body), 1)


def job(source: Broker, number: int, state: str, value: int = 0, *, aside: bool = False) -> bool:
    name = f"job:{number}"
    body = JobBody(id=str(number), queue="q", state=State(state), attempts=value)
    return source.publish(name, name, "job", body, 1, aside=aside)


@dataclass
class Client:
    """What a client knows, from what it was told."""

    subscription: Subscription
    life: str
    table: dict[str, Any] = field(default_factory=dict[str, Any])
    last: str | None = None
    told: int = 0
    started_over: int = 0

    def take(self, limit: int = 10**9) -> None:
        anew, events = self.subscription.take(limit, 1 << 30)
        if anew:
            self.started_over += 1
            self.table.clear()
            self.last = event_id(self.life, 0)
        for event, topic in events:
            self.told += 1
            self.last = event_id(self.life, event.version)
            body = event.read(topic)
            if event.removed:
                self.table.pop(event.key, None)
            else:
                self.table[event.key] = body[event.type.removesuffix("_update")]

    def drain(self) -> None:
        while len(self.subscription):
            self.take(3)


def client(source: Broker, *topics: str, last: str | None = None) -> Client:
    return Client(source.subscribe(parse(topics), lambda: None, last), source.life)


def test_first_the_state_then_changes_and_nothing_twice() -> None:  # spec: EV-2 EV-3
    source = Broker("life")
    publish(source, "worker:a:0:status", status="starting")
    publish(source, "queue:status", queued=1)
    watching = client(source, "worker:*:status")
    watching.take()
    assert watching.table == {"worker:a:0:status": {"status": "starting"}}
    assert not publish(source, "worker:a:0:status", status="starting")
    assert not len(watching.subscription)
    assert publish(source, "worker:a:0:status", status="healthy")
    publish(source, "queue:status", queued=2)
    watching.take()
    assert (watching.table, watching.told) == ({"worker:a:0:status": {"status": "healthy"}}, 2)


def test_what_only_counts_seconds_is_no_news_but_told_with_the_next() -> None:  # spec: EV-2
    source = Broker("life")
    name = "queue:a:status"
    assert source.publish(name, name, "queue", Thing(queued=1, wait=1), 1, ignoring=("wait",))
    assert not source.publish(name, name, "queue", Thing(queued=1, wait=2), 2, ignoring=("wait",))
    assert source.publish(name, name, "queue", Thing(queued=2, wait=3), 3, ignoring=("wait",))


def test_a_removal_is_an_event_once() -> None:  # spec: EV-2
    source = Broker("life")
    publish(source, "worker:a:0:status", status="healthy")
    watching = client(source, "*")
    watching.take()
    assert source.remove("worker:a:0:status", "worker:a:0:status", "worker", GONE, 5)
    assert not source.remove("worker:a:0:status", "worker:a:0:status", "worker", GONE, 6)
    _, [(event, topic)] = watching.subscription.take(10)
    wanted = {"topic": "worker:a:0:status", "type": "worker_update", "timestamp_ms": 5, "removed": True}
    assert event.read(topic) == {**wanted, "worker": {"component": "worker:a:0", "crew": "a", "index": 0, "node": "n"}}
    assert publish(source, "worker:a:0:status", status="healthy")


def test_a_slow_client_is_given_the_newest_of_each_thing() -> None:  # spec: EV-4
    source = Broker("life")
    watching = client(source, "*")
    for value in range(10_000):
        publish(source, f"worker:a:{value % 3}:status", value=value)
    assert len(watching.subscription) == 3
    watching.take()
    assert sorted(body["value"] for body in watching.table.values()) == [9997, 9998, 9999]


def test_more_than_a_thousand_jobs_and_it_starts_over() -> None:  # spec: EV-4
    source = Broker("life")
    publish(source, "system:health", status="healthy")
    job(source, 0, "running")
    watching = client(source, "*")
    watching.take()
    for number in range(1, 1001):
        job(source, number, "done")
    assert len(watching.subscription) == 1000
    job(source, 1001, "done")
    assert (len(watching.subscription), watching.subscription.resync) == (1, True)
    for number in range(2000, 9000):
        job(source, number, "done")
    assert len(watching.subscription) == 1
    watching.take()
    assert watching.started_over == 1
    assert len(watching.table) == 1 + 1 + broker.LAST_JOBS
    assert watching.table["job:0"]["state"] == "running"


def test_what_runs_stays_in_the_state_and_of_the_rest_the_last_hundred() -> None:  # spec: EV-2
    source = Broker("life")
    for number in range(2000):
        job(source, number, "running")
    for number in range(500):
        job(source, number, "done")
    watching = client(source, "queue:jobs")
    watching.drain()
    assert watching.started_over == 0
    assert sorted(watching.table) == sorted(f"job:{number}" for number in range(400, 2000))


def test_a_job_that_somebody_looks_at_is_kept_for_it_alone() -> None:
    source = Broker("life")
    looking, listing = client(source, "job:7"), client(source, "queue:jobs")
    job(source, 7, "done", aside=True)
    for number in range(100, 400):
        job(source, number, "done")
    looking.take()
    listing.take()
    assert list(looking.table) == ["job:7"]
    assert "job:7" not in listing.table
    again = client(source, "job:7")
    again.take()
    assert list(again.table) == ["job:7"]
    for each in (looking, again):
        source.unsubscribe(each.subscription)
    for number in range(400, 600):
        job(source, number, "done")
    assert source.get("job:7") is None


def test_a_job_that_is_not_there_is_told_to_everyone_who_asks() -> None:
    source = Broker("life")
    first = client(source, "job:7")
    source.remove("job:7", "job:7", "job", JobIdentity("7"), 1)
    assert [event.removed for event, _ in first.subscription.take(9)[1]] == [True]
    second = client(source, "job:7")
    assert [event.removed for event, _ in second.subscription.take(9)[1]] == [True]


@pytest.mark.parametrize(("last", "told"), [("life-0", 3), ("life-1", 2), ("life-3", 0), ("other-2", 3), (None, 3)])
def test_whoever_comes_back_is_told_what_is_newer_or_everything(last: str | None, told: int) -> None:  # spec: EV-5
    source = Broker("life")
    for number in range(3):
        publish(source, f"worker:a:{number}:status", value=number)
    back = client(source, "*", last=last)
    back.take()
    assert back.told == told
    assert back.started_over == (last in ("life-0", "other-2"))


def test_other_topics_bring_the_state_of_what_is_new() -> None:
    source = Broker("life")
    publish(source, "system:health", status="healthy")
    publish(source, "queue:status", queued=1)
    watching = client(source, "system:health")
    watching.take()
    source.change(watching.subscription, parse(["queue:status", "system:health"]))
    watching.take()
    assert (sorted(watching.table), watching.told) == (["queue:status", "system:health"], 2)
    source.change(watching.subscription, parse(["queue:status"]))
    publish(source, "system:health", status="error")
    assert not len(watching.subscription)


def test_somebody_is_woken_once_when_there_is_something() -> None:
    source, woken = Broker("life"), list[int]()
    subscription = source.subscribe(EVERYTHING, lambda: woken.append(1))
    for value in range(5):
        publish(source, f"worker:a:{value}:status", value=value)
    assert woken == [1]
    subscription.take(2)
    publish(source, "worker:a:9:status", value=9)
    assert woken == [1]
    subscription.take(99)
    source.start_over("another")
    assert woken == [1, 1]


# any interleaving

KINDS = {
    "worker": 4, "remove": 4, "queued": 1, "running": 3, "done": 3, "take": 6, "leave or return": 2, "pump": 6,
    "line lost": 1, "new life": 1,
}  # fmt: skip
TOPICS = (("*",), ("queue:jobs", "worker:*:status"), ("job:3", "worker:a:1:status"))


class Relay:
    """A broker that mirrors another one, as an API process does."""

    def __init__(self, source: Broker) -> None:
        self.source, self.image = source, Broker("")
        self.connect()

    def connect(self) -> None:
        self.line = self.source.subscribe(EVERYTHING, lambda: None, mirror=True)
        events: list[Any] = []
        while len(self.line):
            _, told = self.line.take(5)
            events += [Wire.of(event).event() for event, _ in told]
        self.image.mirror(self.source.life, events, self.source.floors)

    def reconnect(self) -> None:
        self.source.unsubscribe(self.line)
        self.connect()

    def pump(self, limit: int) -> None:
        anew, told = self.line.take(limit)
        if anew:
            self.reconnect()
        for event, _ in () if anew else told:
            self.image.accept(Wire.of(event).event())


@given(st.randoms(use_true_random=True))
@settings(max_examples=200, deadline=None)
def test_any_interleaving_ends_up_right(chance: Random) -> None:  # spec: EV-4 EV-5
    """Clients at the end of a line, slow or away for a while, know in the end what the source knows."""
    kinds = chance.choices(list(KINDS), list(KINDS.values()), k=120)
    ops = [(kind, chance.randrange(12), chance.randint(1, 6)) for kind in kinds]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MOST_PENDING": 4, "LAST_JOBS": 3, "MOST_REMOVED": 1}.items():
            patch.setattr(broker, name, value)
        run(ops)


def run(ops: list[tuple[str, int, int]]) -> None:
    lives = 0
    source = Broker("life0")
    relay = Relay(source)
    clients = [client(relay.image, *topics) for topics in TOPICS]
    away: dict[int, Client] = {}
    for op, number, two in ops:
        one = number % len(TOPICS)
        name = f"worker:a:{number % 4}:status"
        match op:
            case "worker":
                publish(source, name, value=two % 3)
            case "remove":
                source.remove(name, name, "worker", GONE, 1)
            case "queued" | "running" | "done":
                job(source, number, op, two % 3)
            case "take":
                clients[one].life = relay.image.life
                if one not in away:
                    clients[one].take(two)
            case "leave or return" if one in away:
                clients[one] = returned(away.pop(one), relay.image, TOPICS[one])
            case "leave or return":
                away[one] = clients[one]
                relay.image.unsubscribe(clients[one].subscription)
            case "pump":
                relay.pump(two)
            case "line lost":
                relay.reconnect()
            case _ if two < 4:
                continue  # a new life is rare
            case _:
                lives += 1
                relay.source = source = Broker(f"life{lives}")
                relay.connect()
        for each in clients:
            assert len(each.subscription) <= 5 + 1 + max(4, source.jobs + 15)
    while len(relay.line):
        relay.pump(2)
    for one, each in away.items():
        clients[one] = returned(each, relay.image, TOPICS[one])
    for each in clients:
        each.life = relay.image.life
        each.drain()
        check(each, source)


def returned(gone: Client, image: Broker, topics: tuple[str, ...]) -> Client:
    """A client that was away: it knows what it knew, and where it stood."""
    back = client(image, *topics, last=gone.last)
    back.table, back.last = gone.table, gone.last
    return back


def check(each: Client, source: Broker) -> None:
    patterns = each.subscription.patterns
    state = [e for e in source.state(patterns) if not e.removed and patterns.topic_of(e) is not None]
    wanted = {event.key: msgspec.json.decode(msgspec.json.encode(event.body)) for event in state}
    known = dict(each.table)
    for key in [key for key in known if key.startswith("job:") and key not in wanted]:
        assert known.pop(key)["state"] != "running"  # a client may keep those that have ended
    assert known == wanted
