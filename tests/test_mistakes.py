"""Typical mistakes in code, and their answers: what is wrong, and what to write instead, with the user's own line."""

import asyncio
import sqlite3
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import flask
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.encoders import jsonable_encoder
from flask import Flask
from minimal_handlers import Bare
from pydantic import BaseModel

from chargehand import (
    Chargehand,
    ChargehandError,
    Crew,
    Handler,
    Job,
    JobFilter,
    ResultTimeout,
    Retry,
    UnknownCrew,
    handler,
)
from chargehand.host import waiting
from chargehand.testing import eventually, fake, perform, run_all

Try = Callable[["World"], Any]


@dataclass
class Song:
    path: str
    length: float = 0


class Order:
    """As a model of Django: it has `_meta`."""

    _meta = "orders"


class World:
    """What a careless user has: an instance, a crew that takes anything, and one that takes songs."""

    def __init__(self, folder: Path) -> None:
        self.hand: Any = Chargehand(folder=folder)
        self.any: Any = self.hand.crew("any", "handlers:Any")
        self.songs: Any = self.hand.crew("songs", "handlers:Songs", takes=Song)
        self.far: Any = Chargehand(folder / "other.db", folder=folder)
        self.other: Any = self.far.crew("far", "handlers:Any")

    def within(self, crew: Any) -> None:
        with self.hand.transaction() as tx:
            crew.enqueue(1, within=tx)

    def flow(self) -> Any:
        return self.hand.flow("x").__enter__()

    def crew(self, **options: Any) -> Any:
        return self.hand.crew("tag", **{"handler": "handlers:Tag", **options})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.hand.close()
    made.far.close()


class Local(Handler[Any, None]):
    def perform(self, job: Job[Any]) -> None: ...


def made_main(kind: type) -> type:
    """The class as a script that is run has it."""
    return type(kind.__name__, (kind,), {"__module__": "__main__"})


MAKE: Any = Chargehand
MAKE_FILTER: Any = JobFilter
CODE = "must be its name as a string, 'module:Class', because only workers import it"
MISTAKES: dict[str, tuple[Try, str]] = {
    # a crew
    "class": (lambda w: w.crew(handler=Bare), f"'tag': handler is the class Bare itself; {CODE}: write 'minimal_h"),
    "class of the script": (lambda w: w.crew(handler=made_main(Local)), "module of its own, .*write 'handlers:Local'"),
    "script": (lambda w: w.crew(handler="__main__:Tag"), "the script that is run, .* without .py, 'module:Tag'"),
    "object": (lambda w: w.crew(handler=Bare()), "write 'minimal_handlers:Bare'"),
    "function": (lambda w: w.crew(handler=made_main), f"handler is <function made_main at .*>; {CODE}"),
    "dots": (lambda w: w.crew(handler="handlers.Tag"), "not of the form 'module:Class'; did you mean 'handlers:Tag'"),
    "file": (lambda w: w.crew(handler="handlers.py:Tag"), "'handlers.py:Tag' .*; did you mean 'handlers:Tag'"),
    "path": (lambda w: w.crew(handler="package/handlers.py:Tag"), "did you mean 'package.handlers:Tag'"),
    "name": (lambda w: w.hand.crew(7, "handlers:Tag"), "crew name is 7; must be a string"),
    "workers": (lambda w: w.crew(workers="2"), "crew 'tag': workers is '2'; must be a whole number"),
    "timeout": (lambda w: w.crew(timeout="1h"), "crew 'tag': timeout is '1h'; must be a number of seconds, such as 90"),
    "timedelta": (lambda w: w.crew(timeout=timedelta(hours=1)), r"'tag': timeout is .*: use its total_seconds\(\)"),
    "no timeout": (lambda w: w.crew(timeout=0), "crew 'tag': timeout is 0 s; must be more than 0"),
    "result": (lambda w: w.crew(returns=int), "unknown option returns; .*; did you mean gives?"),
    "option": (lambda w: w.crew(worker=2), "crew 'tag': unknown option worker; there are: .*; did you mean workers?"),
    "option of a job": (lambda w: w.crew(delay=5), r"unknown option delay; .*; it is an option of each job: crew.enq"),
    "schedule of a crew": (lambda w: w.crew(cron="0 3 * * *"), r"; a schedule is declared with hand.recurring\('name'"),
    "input": (lambda w: w.crew(input=int, output=int), r"unknown option input, output; .*; did you mean takes\?"),
    "env": (lambda w: w.crew(env={"A": "1"}), r"did you mean environment\?"),
    "soft limit": (lambda w: w.crew(soft_time_limit=5), r"did you mean timeout\?"),
    "crew": (lambda w: w.hand.find_crew("song"), "there is no crew 'song'; there are: any, songs; did you mean songs?"),
    "two crews": (lambda w: w.hand.crew("any", "handlers:Any"), "there are two crews called 'any'"),
    # an instance
    "policy": (lambda w: MAKE(restart={"limit": 5}), r"restart is {'limit': 5} .*; must be a chargehand.Restart"),
    "url": (lambda w: MAKE(8356), r"url is 8356 \(given in code\); must be a path, sqlite:///"),
    "broker": (lambda w: Chargehand("redis://localhost"), "'redis' is not supported; give a path, sqlite:///"),
    "memory": (lambda w: MAKE(":memory:").jobs(), "':memory:' is not in memory: workers are other proc"),
    "memory by url": (lambda w: MAKE("sqlite:///:memory:").jobs(), r"such as Chargehand\(tmp_path / "),
    "rate": (lambda w: w.crew(rate=10), "'tag': rate is 10; must be a string such as '10/s' or '600/min'"),
    # a job
    "delay": (lambda w: w.any.enqueue(1, delay=-5), "delay is -5 s; must be 0 or more"),
    "expired": (lambda w: w.any.enqueue(1, delay=60, expires=5), "expires is 5 s and delay 60 s; .* longer than delay"),
    "run_at": (lambda w: w.any.enqueue(1, run_at=datetime(2030, 1, 1)), "must be a datetime with a time zone"),
    "after": (lambda w: w.any.enqueue(1, after=60), "use delay=60 to wait for a time"),
    "after a timedelta": (lambda w: w.any.enqueue(1, after=timedelta(minutes=1)), "use delay=60 to wait for a time"),
    "after a datetime": (lambda w: w.any.enqueue(1, after=[datetime(2030, 1, 1)]), "use run_at= to wait until a time"),
    "after a dict": (lambda w: w.any.enqueue(1, after={"a": 1}), "after is {'a': 1}; .*: pass what enqueue returned"),
    "after a list of lists": (lambda w: w.any.enqueue(1, after=[["a"]]), r"after contains \['a'\]; it names the jobs"),
    "after a flow": (lambda w: w.any.enqueue(1, after=w.flow()), "after names flow 'x'; it takes jobs: .*on_end="),
    "job option": (lambda w: w.any.enqueue(1, prio=3), "unknown option prio; there are: .*; did you mean priority?"),
    "option of a crew": (lambda w: w.any.enqueue(1, backoff=5), r"it is an option of the crew: hand.crew\(…, backoff="),
    "reference as payload": (lambda w: w.any.enqueue([w.any.ref("x")]), r"\[0\] is of the type Ref: pass its id"),
    "model of Django": (lambda w: w.any.enqueue([Order()]), r"\[0\] is of the type Order: pass its primary key, and"),
    "bytes": (lambda w: w.any.enqueue(b"a"), "payload for crew 'any' .*: it is of the type bytes: pass text"),
    "bytes inside": (lambda w: w.any.enqueue({"songs": [{"data": b""}]}), r"\['songs'\]\[0\]\['data'\] is of the type"),
    "path object": (lambda w: w.any.enqueue({"path": Path("a")}), r"\['path'\] is of .* PosixPath: pass str\(path\)"),
    "set": (lambda w: w.any.enqueue({1}), "it is of the type set: pass a list"),
    "nan": (lambda w: w.any.enqueue([0.0, float("nan")]), r"\[1\] is nan: pass None"),
    "generator": (lambda w: w.any.enqueue(each for each in "ab"), "of the type generator: pass a list of what it"),
    "exception": (lambda w: w.any.enqueue(Retry(after=5)), "of the type Retry: raise it, or pass its text"),
    "key of a dict": (lambda w: w.any.enqueue({("a", 1): 2}), r"it has the key \('a', 1\): keys must be strings"),
    "code": (lambda w: w.any.enqueue({"do": made_main}), r"\['do'\] is of the type function: pass data, not code"),
    "wrong payload": (lambda w: w.songs.enqueue({"file": "a"}), "not a Song: Object missing required field `path`"),
    "letters": (lambda w: w.any.enqueue_many("abc"), "are one str; must be several, such as a list: enqueue takes one"),
    "one of many": (lambda w: w.songs.enqueue_many(Song("a")), "are one Song; must be several"),
    "second of many": (lambda w: w.songs.enqueue_many([Song("a"), {}]), r"field `path` \(payload 2 of 2\)"),
    "begun": (lambda w: w.any.enqueue(1, within=w.hand.transaction()), "has not begun: write `with hand.transaction()"),
    "called": (lambda w: w.any.enqueue(1, within=w.hand.transaction), "has not begun: write `with hand.transaction()"),
    "database": (lambda w: w.any.enqueue(1, within=sqlite3.connect(":memory:")), "accepts what hand.transaction"),
    # words of other systems
    "countdown": (lambda w: w.any.enqueue(1, countdown=3), "unknown option countdown; .*; did you mean delay?"),
    "eta": (lambda w: w.any.enqueue(1, eta=datetime(2030, 1, 1)), "did you mean run_at?"),
    "depends_on": (lambda w: w.any.enqueue(1, depends_on="x"), "did you mean after?"),
    "queue of a job": (lambda w: w.any.enqueue(1, queue="low"), "a crew has one queue: declare a crew for each"),
    "rate_limit": (lambda w: w.crew(rate_limit="10/m"), "unknown option rate_limit; .*; did you mean rate?"),
    # references and flows
    "reference as id": (lambda w: w.any.ref(w.any.ref("x")), r"not Ref\('x'\): it is a reference already"),
    "number as id": (lambda w: w.any.ref(7), "crew.ref takes the id of a job, a string, not 7"),
    "swapped": (lambda w: w.flow().enqueue(1, w.any), "flow 'x': the first argument is 1; expected what hand.crew"),
    "crew in a flow": (lambda w: w.flow().enqueue_many("any", [1]), "the first argument is 'any'; expected what hand"),
    # recurring jobs
    "zone": (lambda w: w.hand.recurring("night", w.any, 1, cron="0 3 * * *", zone="Berlin"), "such as 'UTC' or 'Eur"),
    "neither": (lambda w: w.hand.recurring("night", w.any, 1), "'night' has neither cron nor every; set one: cron="),
    "both": (lambda w: w.hand.recurring("night", w.any, 1, cron="0 3 * * *", every=9), "has both cron and every"),
    "every": (lambda w: w.hand.recurring("night", w.any, 1, every="1h"), "'night': every is '1h'; must be a number of"),
    "time zone": (lambda w: w.hand.recurring("night", w.any, 1, cron="0 3 * * *", tz="UTC"), "did you mean zone?"),
    "timezone": (lambda w: w.hand.recurring("night", w.any, 1, every=9, timezone="UTC"), "did you mean zone?"),
    "schedule": (lambda w: w.hand.recurring("night", w.any, 1, schedule="0 3 * * *"), "did you mean cron?"),
    "crew as job": (lambda w: w.any.enqueue(1, after=w.any), r"after is Crew\('any'\); it names the jobs"),
    "too often": (lambda w: w.hand.recurring("night", w.any, 1, every=0.1), "every is 0.1 s; must be 1 s or more"),
    "cron": (lambda w: w.hand.recurring("night", w.any, 1, cron="daily"), "'night': cron expression 'daily': .*0 3"),
    "crew of another store": (lambda w: w.hand.recurring("night", w.other, 1, every=9), "'far' is of another store"),
    "end in another store": (lambda w: w.hand.flow("x", on_end=w.other), "on_end is crew 'far' of another store, .*/o"),
    "transaction of another store": (lambda w: w.within(w.other), r"is of another store, .*/chargehand\.db: a job of"),
    "within of a coroutine": (lambda w: asyncio.run(w.any.enqueue_async(1, within=1)), "a transaction belongs to"),
    "default": (lambda w: w.crew(default="no"), "crew 'tag': default is 'no'; must be True or False"),
    "flow as id": (lambda w: w.hand.find_flow(w.flow()), r"takes the id of a flow, a string, not Flow\(.*: pass '"),
    "wait in the block": (lambda w: w.flow().enqueue(w.any, 1).wait(1), "flow 'x' does not exist yet: it is made"),
    "job in the block": (lambda w: w.flow().enqueue(w.any, 1).job(), "flow 'x' does not exist yet: it is made"),
    "crew by name": (lambda w: w.hand.recurring("night", "any", 1, every=9), "crew is 'any'; expected what hand.crew"),
    # operations
    "reference": (lambda w: w.hand.cancel(w.any.enqueue(1)), r"hand.cancel takes the id .* not Ref\(.*pass ref.id"),
    "list of ids": (lambda w: w.hand.retry(["a", "b"]), r"ids one by one, not in a list: hand.retry\(\*ids\)"),
    "number": (lambda w: w.hand.job(7), "hand.job takes the id of a job, a string, not 7"),
    "filter": (lambda w: w.hand.jobs("failed"), r"the filter is 'failed'; must be a JobFilter, such as JobFilter\("),
    "state": (lambda w: w.hand.jobs(JobFilter(state="faild")), "JobFilter: state is 'faild'"),  # pyright: ignore
    "field of a filter": (lambda w: MAKE_FILTER(status="done"), "JobFilter: unknown field status; .* you mean state?"),
    "crew of a filter": (lambda w: MAKE_FILTER(crew="any"), "unknown field crew; there are: .*; did you mean queue?"),
    "time of a filter": (lambda w: MAKE_FILTER(older=5), "did you mean older_ms, in milliseconds?"),
    "filter without a name": (lambda w: MAKE_FILTER("failed"), r"JobFilter\('failed'\): conditions have names, as in"),
    "scope": (lambda w: w.hand.pause(w.any), "the scope is a crew object; must be its name: 'any'"),
    "scopes": (lambda w: w.hand.make_key("ci", ["admin"]), r"the scopes are \['admin'\]; must be a list of: read, enq"),
    "one scope": (lambda w: w.hand.make_key("ci", "read"), "the scopes are 'read'; must be a list of: read, enqueue"),
    # applications
    "wsgi": (lambda w: w.hand.attach(Flask("app")), "a WSGI application .*flask.app.Flask.*: enqueue in it"),
    "class of an application": (lambda w: w.hand.attach(FastAPI), r"the class FastAPI; must be an application"),
    "router": (lambda w: w.hand.attach(APIRouter()), "was given a router; must be the application that includes it"),
    "text": (lambda w: w.hand.attach("main:app"), "was given 'main:app'; must be an ASGI application"),
    "nothing": (lambda w: w.hand.attach(None), "was given None; must be an ASGI application"),
    "prefix": (lambda w: w.hand.attach(FastAPI(), "jobs"), "prefix is 'jobs'; must be a path such as '/chargehand'"),
    "need": (lambda w: w.hand.requires("admin"), "the scope is 'admin'; must be one of: read, enqueue, control"),
    "guard": (lambda w: w.hand.requires(flask), "the scope is <module 'flask'.*must be one of: read"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_answer_says_what_is_wrong_and_what_to_write(name: str, world: World) -> None:
    mistake, answer = MISTAKES[name]
    before = len(world.hand.jobs()) if name != "reference" else None
    with pytest.raises(ChargehandError, match=answer):
        mistake(world)
    assert before is None or len(world.hand.jobs()) == before


def test_a_pause_without_a_node_names_the_crews_that_there_are(world: World) -> None:
    world.any.enqueue(1)  # makes the store, in which no node has registered a crew yet
    with pytest.raises(UnknownCrew, match="there is no crew or worker 'som'; there are: any, songs"):
        world.hand.pause("som")
    assert world.hand.pause("songs")[0].component == "songs"


def test_attach_is_called_once_for_an_application(world: World, tmp_path: Path) -> None:
    app = FastAPI()
    assert world.hand.attach(app) is app
    with pytest.raises(
        ChargehandError, match="attach was called twice for this application: it is at '/chargehand' al"
    ):
        world.hand.attach(app, "/other")
    other = Chargehand(folder=tmp_path)
    with pytest.raises(ChargehandError, match="another Chargehand is attached at '/chargehand': choose another prefix"):
        other.attach(app)
    other.attach(app, "/other")
    world.hand.attach(FastAPI())  # the application of another test, for example
    other.close()


@pytest.mark.parametrize(
    ("mistake", "answer"),
    [
        (lambda w: w.any.delay(1), "no attribute 'delay'; use crew.enqueue"),
        (lambda w: w.any.apply_async((1,)), "no attribute 'apply_async'; use crew.enqueue"),
        (lambda w: w.any.si(1), "no attribute 'si'; use after= and job.spawn"),
        (lambda w: w.any.colour, "'Crew' object has no attribute 'colour'$"),
        (lambda w: w.hand.enqueue("any", 1), r"what hand.crew\(…\) returns has it"),
        (lambda w: w.hand.task(print), r"performed by classes: hand.crew\('name', 'module:Class'\)"),
        (lambda w: w.hand.periodic_task, "use hand.recurring"),
        (lambda w: w.hand.colour, "'Chargehand' object has no attribute 'colour'$"),
        (lambda w: w.any.defer(a=1), "use crew.enqueue"),
        (lambda w: w.any.perform(1), r"use crew.enqueue\(payload\); in a test, chargehand.testing.perform"),
        (lambda w: w.any.map([1]), "use crew.enqueue_many"),
        (lambda w: w.hand.run_worker(), "or the command `chargehand work module:hand`"),
        (lambda w: w.any.ref("x").get(timeout=3), r"'Ref' object has no attribute 'get'; use ref.wait\(timeout\)"),
        (lambda w: w.any.ref("x").status, "use ref.job"),
        (lambda w: w.any.ref("x").revoke(), r"use ref.cancel\(\)"),
        (lambda w: w.any.ref("x").colour, "'Ref' object has no attribute 'colour'$"),
        (lambda w: w.any.ref("x").attemps(), r"'Ref' object has no attribute 'attemps'; did you mean attempts\?$"),
        (
            lambda w: w.flow().chain(w.any, w.any),
            r"'Flow' object has no attribute 'chain'; use flow.enqueue\(crew, payl",
        ),
        (lambda w: w.flow().statsu(), r"'Flow' object has no attribute 'statsu'; did you mean status\?$"),
        (lambda w: w.any.enque(1), r"'Crew' object has no attribute 'enque'; did you mean enqueue\?$"),
        (lambda w: w.hand.recuring("night", w.any), r"no attribute 'recuring'; did you mean recurring\?$"),
    ],
)
def test_methods_of_other_systems_are_answered_with_what_to_use(mistake: Try, answer: str, world: World) -> None:
    with pytest.raises(AttributeError, match=answer):
        mistake(world)


def test_tools_for_tests_name_what_they_take(world: World) -> None:
    named: Any = "handlers:Any"
    with pytest.raises(TypeError, match=r"perform\(\) takes the class of a handler, not its name: .*'handlers:Any'"):
        perform(named, 1)
    with (
        pytest.raises(TypeError, match=r"fake\(\) takes what hand.crew\(…\) returned, not 'handlers:Any'"),
        fake(named, print),
    ):
        pass
    with pytest.raises(TypeError, match=r"takes the class of a handler, not a crew: import the .*'handlers:Any' names"):
        perform(world.any, 1)
    constant: Any = 3
    with pytest.raises(TypeError, match=r"needs a function .*, such as lambda payload: 3"), fake(world.any, constant):
        pass
    kind: Any = Bare
    with pytest.raises(TypeError, match=r"in place of the handler: lambda payload: perform\(Bare, payload\)"):
        fake(world.any, kind).__enter__()
    function: Any = print
    with pytest.raises(
        TypeError, match=r"takes the class of a handler, derived from chargehand.Handler, not <built-in"
    ):
        perform(function, 1)
    with pytest.raises(TypeError, match=r"takes a function, such as lambda: ref.job\(\).state == 'done', not 3"):
        eventually(constant)
    with pytest.raises(TypeError, match="takes a plain function, not a coroutine function: <function"):
        _ = eventually(coroutine)
    with pytest.raises(TypeError, match=r"run_all\(\) takes the Chargehand object .*, not Crew\('any'\)"):
        run_all(world.any)


def test_jobs_of_a_test_are_kept_apart_from_those_of_a_node(tmp_path: Path) -> None:
    hand = Chargehand(folder=tmp_path)
    crew = hand.crew("bare", "minimal_handlers:Bare", workers=0)
    with hand.running():
        ref = crew.enqueue({})
        eventually(lambda: hand.status() is not None)
        with pytest.raises(
            ChargehandError, match=r"run_all: the node with pid \d+ serves .*set CHARGEHAND_URL in conf"
        ):
            run_all(hand)
        assert ref.job().state == "queued"
    assert [each.crew for each in run_all(hand)] == ["bare"]
    hand.close()


async def coroutine() -> bool:
    return False


class Waiting(Handler[int, int]):
    async def perform(self, job: Job[int]) -> int:
        return 1


class Plain(Handler[int, int]):
    def perform(self, job: Job[int]) -> int:
        return 1


class Parted(Handler[int, int]):
    def __init__(self, model: str) -> None: ...

    def perform(self, job: Job[int]) -> int:
        return 1


class Empty(Handler[int, int]):
    def perform(self) -> int:  # type: ignore[override]
        return 1


def test_perform_says_what_a_worker_would() -> None:
    with pytest.raises(ChargehandError, match=r"'Parted' is created without arguments, but .* set it up in set_up"):
        perform(Parted, 1)
    with pytest.raises(ChargehandError, match=r"'Empty' has perform\(self\); write perform\(self, job\)"):
        perform(Empty, 1)


def test_on_commit_of_django_takes_a_crew(world: World) -> None:
    from chargehand.django import on_commit

    method: Any = world.any.enqueue
    with pytest.raises(TypeError, match=r"then the payload: on_commit\(ship, order.pk\), not <bound method"):
        on_commit(method, 1)


def test_an_async_handler_is_performed_outside_a_coroutine() -> None:
    async def inside(kind: type[Handler[int, int]]) -> int:
        return perform(kind, 1)

    assert asyncio.run(inside(Plain)) == 1
    with pytest.raises(RuntimeError, match=r"in a plain function, or `await asyncio.to_thread\(perform, …\)`"):
        asyncio.run(inside(Waiting))


class Careless(Handler[dict[str, Any], None]):
    """Makes the mistake that its payload names."""

    def perform(self, job: Job[dict[str, Any]]) -> None:
        one: Any = {"path": "a"}
        wrong: Any = "5m"
        match job.payload["mistake"]:
            case "spawn one":
                job.spawn("any", one)
            case "spawn a model":
                job.spawn("any", Model(path="a"))
            case "spawn swapped":
                job.spawn([one], "any")  # type: ignore[arg-type]
            case "enqueue swapped":
                job.enqueue(one, "any")
            case "results of nothing":
                job.results(one)
            case "progress":
                job.progress(wrong)
            case "request":
                wrong = job
                _ = wrong.request.id
            case "retry of a job":
                wrong = job
                raise wrong.retry(3)
            case "retry of a task":
                wrong = self
                wrong.retry(countdown=3)
            case "state":
                wrong = self
                wrong.update_state("PROGRESS")
            case "word of a job":
                wrong = job
                _ = wrong.paylod
            case "word of a handler":
                wrong = self
                self.network = 1
                _ = wrong.netwrok
            case "attribute":
                wrong = self
                _ = wrong.colour
            case _:
                raise Retry(wrong)


class Model(BaseModel):
    path: str


@pytest.mark.parametrize(
    ("mistake", "answer"),
    [
        ("spawn one", "the payloads for job.spawn are one dict; must be several, such as a list: enqueue takes one"),
        ("spawn a model", "the payloads for job.spawn are one Model; must be several"),
        (
            "spawn swapped",
            r"the first argument of job.spawn is \[.*; expected what hand.crew\(…\) returned, or the name",
        ),
        ("enqueue swapped", "the first argument of job.enqueue is {'path': 'a'}; expected"),
        ("results of nothing", "the first argument of job.results is {'path': 'a'}; expected"),
        ("progress", "progress: done is '5m'; expected a number; stage= and detail= take texts"),
        ("request", "'Job' object has no attribute 'request'; use job.payload for what was enqueued"),
        ("retry of a job", "use raise Retry"),
        ("retry of a task", "'Careless' object has no attribute 'retry'; use raise Retry"),
        ("state", r"'update_state'; use the job of perform\(self, job\), such as job.progress"),
        ("attribute", "^'Careless' object has no attribute 'colour'$"),
        ("word of a job", r"'Job' object has no attribute 'paylod'; did you mean payload\?$"),
        ("word of a handler", r"'Careless' object has no attribute 'netwrok'; did you mean network\?$"),
        ("retry", "Retry: after is '5m'; must be a number of seconds, such as 90"),
    ],
)
def test_mistakes_in_a_handler(mistake: str, answer: str) -> None:
    with pytest.raises((ChargehandError, ValueError, TypeError, AttributeError), match=answer):
        perform(Careless, {"mistake": mistake})


def test_a_handler_that_returns_a_reference_is_told_to_return_its_id(world: World) -> None:
    class Referring(Handler[int, Any]):
        def perform(self, job: Job[int]) -> Any:
            return world.any.ref("x")

    with pytest.raises(TypeError, match=r"waits, and a handler returns ref\.id"):
        perform(Referring, 1)


class Misnamed(Handler[int, int]):
    def setup(self) -> None:
        self.model = 1

    def perform(self, job: Job[int]) -> int:
        return self.model


def test_a_method_that_nothing_calls_is_named() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'model'; workers call set_up\(self\), not setup$"):
        perform(Misnamed, 1)


def test_an_enqueue_that_is_awaited_names_the_other(world: World) -> None:
    async def wrong() -> None:
        await world.any.enqueue(1)

    with pytest.raises(TypeError, match=r"await crew.enqueue_async\(payload\) enqueues, await ref.result\(\) waits"):
        asyncio.run(wrong())


def test_only_its_block_commits_a_transaction(world: World) -> None:
    given: Any = world.hand.transaction()
    with pytest.raises(AttributeError, match="'commit'; the end of the block commits, an exception rolls"), given as tx:
        tx.commit()
    given = world.hand.transaction()
    with pytest.raises(AttributeError, match=r"use crew.enqueue\(payload, within=tx\)"), given as tx:
        tx.enqueue(1)


def test_a_missing_label_is_none(world: World) -> None:
    assert world.any.enqueue(1, label=None).job().label is None


def test_waiting_in_an_event_loop_is_warned_of(world: World) -> None:
    """The warning names the caller's line, and neither a thread nor `result()` brings it."""
    ref = world.any.enqueue(1)

    async def blocking() -> None:
        with pytest.raises(ResultTimeout):
            ref.wait(0)

    async def proper() -> None:
        with pytest.raises(ResultTimeout):
            await ref.result(0.01)
        with pytest.raises(ResultTimeout):
            await asyncio.to_thread(ref.wait, 0)

    with pytest.warns(RuntimeWarning, match=r"ref.wait\(\) blocks the event loop: use `await ref.result\(\)`") as found:
        asyncio.run(blocking())
    assert [each.filename for each in found] == [__file__]
    with warnings.catch_warnings(action="error"):
        asyncio.run(proper())
        with pytest.raises(ResultTimeout):
            ref.wait(0)


def test_a_route_that_returns_a_reference_is_told_to_return_its_id(world: World) -> None:
    with pytest.raises(ValueError, match=r"a Ref cannot be encoded: return ref\.id, or what the caller may see"):
        jsonable_encoder(world.any.ref("x"))


def test_waiting_in_vain_without_a_limit_is_warned_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit, the error says it; warnings are errors in these tests, so that the endless call ends."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    ref = world.any.enqueue(1)
    why = f"waiting for job {ref.id}, which no worker will take: no node runs: chargehand work APP"
    with pytest.raises(RuntimeWarning, match=why):
        ref.wait()
    with pytest.raises(RuntimeWarning, match=why):
        asyncio.run(ref.result())
    with pytest.raises(ResultTimeout, match="no node runs"):
        ref.wait(0.01)
    with pytest.raises(ResultTimeout, match="no node runs"):
        asyncio.run(ref.result(0.01))


def test_a_handler_that_waits_in_vain_is_told_to_let_a_job_follow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "ready", True)
    with pytest.raises(ResultTimeout, match="a handler that waits occupies its worker: spawn the job, and let another"):
        world.any.enqueue(1).wait(0)


def run(code: str, folder: Path) -> str:
    """The last line of the traceback of a module of the user's."""
    module = ModuleType("jobs")
    module.__file__ = str(folder / "jobs.py")
    try:
        exec(compile(code, module.__file__, "exec"), vars(module))
    except (ChargehandError, TypeError) as error:
        return traceback.format_exception(error)[-1].strip()
    finally:
        if "hand" in vars(module):
            module.hand.close()
    raise AssertionError("no error")


START = "from chargehand import Chargehand, LivenessPolicy\nhand = Chargehand()\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (f"{START}tag = hand.crew('tag', 'handlers:Tag', workers='2')", 3),
        (f"{START}tag = hand.crew('tag')", 3),
        (f"{START}tag = hand.crew('tag', 'handlers:Tag')\nhand.recurring('night', tag)", 4),
        (f"{START}tag = hand.crew('tag', 'handlers:Tag')\ndef go():\n    tag.enqueue(1, delay=-5)\ngo()", 5),
        (f"{START}tag = hand.crew('tag', 'handlers:Tag')\ntag.enqueue()", 4),
        (f"{START}\nhand.attach(None)", 4),
        ("from chargehand import Chargehand\n\nChargehand(log_level='loud')", 3),
    ],
)  # fmt: skip
def test_the_traceback_ends_with_the_users_line(code: str, line: int, tmp_path: Path) -> None:
    assert run(code, tmp_path).endswith(f"in {tmp_path}/jobs.py, line {line}")


@pytest.mark.parametrize(
    ("mistake", "answer"),
    [
        (lambda w: w.songs.enqueue(path="x"), r"a job has one payload: crew.enqueue\(Song\(path='a'\)\) or"),
        (lambda w: w.songs.enqueue(Song("a"), Song("b")), "2 positional arguments .*; a job has one payload"),
        (lambda w: w.songs.enqueue_many(Song("a"), Song("b")), r"one argument: crew.enqueue_many\(\[Song"),
        (
            lambda w: w.hand.crew("tag"),
            r"argument: 'handler'; a crew has a name and a handler: hand.crew\('tag', 'handl",
        ),
        (lambda w: MAKE(broker="redis://"), r"Chargehand\(\) has no argument 'broker'; did you mean url\?"),
        (
            lambda w: MAKE(port=80),
            r"'port'; it is a setting: CHARGEHAND_PORT in the environment or in .env, port in char",
        ),
        (
            lambda w: MAKE(workers=4),
            "'workers'; it is a setting: WORKER_PROCESSES, or CHARGEHAND_CREW_NAME_WORKERS for",
        ),
        (lambda w: MAKE(grace=45), r"'grace'; did you mean liveness=chargehand.LivenessPolicy\(grace=…\)\?"),
        (lambda w: MAKE(log_levle="INFO"), r"'log_levle'; did you mean log_level\?"),
        (lambda w: MAKE(colour=1), r"^Chargehand\(\) has no argument 'colour'\nin "),
        (lambda w: w.hand.jobs(state="done"), r"those of a filter: JobFilter\(queue='tag', state=State.FAILED\)"),
        (lambda w: w.hand.flows(text="a"), r"those of a filter: FlowFilter\(text='import'\)"),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_write(mistake: Try, answer: str, world: World) -> None:
    with pytest.raises(TypeError, match=answer) as found:
        mistake(world)
    assert f"in {__file__}, line" in found.value.__notes__[-1]


def test_an_error_in_a_file_of_settings_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "chargehand.toml").write_text("port = 1\ngrace = 45\n")
    assert run(START, tmp_path).endswith(
        f"{tmp_path}/chargehand.toml, line 2: unknown setting grace; did you mean liveness.grace? In a TOML file, "
        "grace belongs below [liveness]"
    )


def test_only_the_callers_own_mistakes_end_with_his_line(world: World) -> None:
    """A TypeError from the depth of the package keeps its traceback."""
    unbound: Any = Crew.enqueue
    with pytest.raises(AttributeError) as depth:
        unbound(None, 1)
    assert not hasattr(depth.value, "__notes__")
