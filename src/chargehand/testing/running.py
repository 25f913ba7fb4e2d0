"""Performs everything that is enqueued, in this process and in order: flows, children, retries and ends included."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec

from chargehand import clock, codec, errors, handler
from chargehand.app import Chargehand
from chargehand.crew import Crew
from chargehand.handler import ResultPages
from chargehand.ids import new_id
from chargehand.model.batch import Want
from chargehand.model.job import Claim, Crashed, Done, Outcome, Returned, Settlement, State, expired, settle
from chargehand.model.records import CrewRow, Holder
from chargehand.node.results import read_page
from chargehand.protocol.frame import Decoder, Frame
from chargehand.protocol.worker import outcome_of, outcomes, questions
from chargehand.store import Store
from chargehand.stores import open_store
from chargehand.stores.sqlite.store import SqliteStore
from chargehand.system.job_files import JobFiles
from chargehand.worker import perform
from chargehand.worker.asking import Pages
from chargehand.worker.failures import describe
from chargehand.worker.foreground import Foreground, LocalContext, LocalFiles

NODE = "run_all"
AT_MOST = 10_000
"""Attempts after which it is assumed that jobs enqueue each other without end."""
FRAME_LIMIT = 64 << 20


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that was performed."""

    crew: str
    id: str
    payload: Any
    """The payload as plain data."""
    attempt: int
    outcome: str
    """`done`, `raised`, `retry`, `gave up` or `crashed`."""
    state: State
    """What the outcome made of the job; a job that is tried again is `queued`."""
    result: Any = None
    """The result as plain data."""
    error: str | None = None


def run_all(hand: Chargehand, *, delays: bool = False, most: int = AT_MOST) -> list[Performed]:
    """Performs everything that is enqueued for the crews of an application, in this process: what is enqueued or
    spawned meanwhile, followers, retries, and the jobs that flows name for their end. Returns the attempts in order.

    A job is chosen as a node would: the highest priority first, then the oldest. Each handler is imported and set up
    once. Delays, and the pauses between attempts, are not waited for, unless `delays` is true: the clock of an SQLite
    store goes ahead instead. With PostgreSQL, whose clock is the server's, only pauses between attempts are left out.
    Paused crews perform nothing. Exceptions of handlers fail their jobs as in a worker, except ConfigurationError and
    UnrecoverableError, which are raised. After `most` attempts an AssertionError is raised. Raises ConfigurationError
    if a node of this machine serves the store: its workers would take jobs of the test, and the test jobs of theirs.
    """
    given: Any = hand
    if not isinstance(given, Chargehand):
        raise TypeError(f"run_all() takes the Chargehand object with the crews, such as jobs.hand, not {given!r}")
    status = hand.status()
    if status is not None:
        raise errors.ConfigurationError(
            f"run_all: the node with pid {status['pid']} serves {hand.internal.location}, too; stop it, or give the "
            "tests a store of their own: set CHARGEHAND_URL in conftest.py, before the application is imported"
        )
    with ExitStack() as stack:
        run = _Run(hand, stack, delays=delays)
        done: list[Performed] = []
        while (claim := run.next()) is not None:
            if len(done) >= most:
                run.give_back(claim)
                raise AssertionError(f"run_all has performed {most} attempts, and there is more: is there no end?")
            done.append(run.perform(claim))
        return done


class _Context(LocalContext):
    """The context of a job that is performed under a claim."""

    def __init__(self, run: "_Run", crew: Crew[Any, Any], claim: Claim) -> None:
        plans = {name: each.plan for name, each in run.hand.crews.items()}
        super().__init__(run.hand, crew=crew.plan, crews=plans, commit=True)
        self._run, self.claim, self.worker = run, claim, self
        self._files = run.files

    @property
    def about(self) -> dict[str, Any]:
        """What names the attempt in a question."""
        return {"id": self.claim.id, "fence": self.claim.number}

    def results(self, crew: Any) -> ResultPages:
        return Pages(self, self.queue_of(crew))  # pyright: ignore[reportArgumentType] (the part of a context it needs)

    def not_detached(self, what: str, instead: str) -> None:
        """Does nothing: this is the process that performs the job."""

    def ask(self, _: Any, number: int, question: bytes) -> dict[str, Any]:
        """Answers a question as a node does."""
        with self._run.hand.internal.stores.use() as store:
            page = read_page(store, questions.decode(_frame(question).body))
        return _frame(page).read_restored()

    async def ask_async(self, _: Any, number: int, question: bytes) -> dict[str, Any]:
        """Answers a question as a node does."""
        return self.ask(_, number, question)

    @contextmanager
    def settle(self, result: Any) -> Generator[Any]:
        assert self._crew is not None
        if not self._crew.transactional:
            raise self.not_transactional()
        text = perform.result_text(result)
        with self._run.hand.transaction() as tx:
            yield tx
            settlement = settle(self.claim, Done(text, tuple(self.enqueued)))
            if tx.jobs.settle([settlement] if settlement else [], self._run.holder):
                raise errors.ClaimLost(f"job {self.claim.id} was given to another worker; nothing was written")
        self.settled = text

    def scratch(self) -> Any:
        return self._run.files.scratch(self.claim.id, self.claim.number)

    def finish(self) -> None:
        """Does nothing: what the job enqueued is written with its outcome."""


class _Run:
    """The claims and the handlers of one call."""

    def __init__(self, hand: Chargehand, stack: ExitStack, *, delays: bool) -> None:
        self.hand, self._stack = hand, stack
        self._ahead_ms = 0
        self._skips = not delays
        self._has_own_clock = hand.location.server is not None
        if self._has_own_clock:
            self._store: Store = open_store(hand.location, synchronous=hand.settings.synchronous)
        else:
            hand.open()
            self._store = SqliteStore(hand.path, synchronous="normal", now_ms=self._now_ms)
        stack.callback(self._store.close)
        self.holder = Holder(NODE, new_id())
        self._crews = {crew.plan.name: crew for crew in hand.crews.values()}
        self._handlers: dict[str, Foreground] = {}
        self._claimed: dict[str, Claim] = {}
        """A claim for each crew, of which the first is performed next."""
        root = hand.location.job_files(hand.settings.files)
        self.files: JobFiles = LocalFiles() if root is None else JobFiles(root, hand.settings.files_limit)
        if isinstance(self.files, LocalFiles):
            stack.callback(self.files.close)
        with self._store.transaction() as tx:
            tx.fleet.register(self.holder, [_row(crew) for crew in self._crews.values()], {"asked": True})
        stack.callback(lambda: self._store.leave(self.holder))
        stack.callback(self._give_all_back)

    def _now_ms(self) -> int:
        return clock.now_ms() + self._ahead_ms

    # claims

    def next(self) -> Claim | None:
        """Returns the next job; None if there is none, and none will be due."""
        while True:
            due_ms = self._claim()
            if self._claimed:
                name = min(self._claimed, key=lambda name: _order(self._claimed[name]))
                claim = self._claimed.pop(name)
                if not claim.expired:
                    return claim
                self._write(expired(claim))
            elif not self._expire():
                if due_ms is None:
                    return None
                self._wait(due_ms)

    def _claim(self) -> int | None:
        """Claims a job for every crew that has none. Returns in how many ms the next one is due."""
        wants = [Want(name, crew.plan.queue, 1) for name, crew in self._crews.items() if name not in self._claimed]
        due: list[int] = []
        with self._store.transaction() as tx:
            for grant in tx.jobs.claim(wants, self.holder) if wants else ():
                if grant.claims:
                    self._claimed[grant.crew] = grant.claims[0]
                elif grant.next_in_ms is not None:
                    due.append(grant.next_in_ms)
        return min(due, default=None)

    def _expire(self) -> int:
        with self._store.transaction() as tx:
            return tx.jobs.expire(500)

    def _wait(self, ms: int) -> None:
        if self._skips and not self._has_own_clock:
            self._ahead_ms += ms + 1
        else:
            clock.sleep((ms + 1) / 1000)

    def give_back(self, claim: Claim) -> None:
        """Returns a job to its queue unchanged."""
        settlement = settle(claim, Returned())
        assert settlement is not None
        self._write(settlement)

    def _give_all_back(self) -> None:
        while self._claimed:
            self.give_back(self._claimed.popitem()[1])

    def _write(self, settlement: Settlement) -> State:
        """Writes an outcome, and returns the state that it leads to."""
        if settlement.delay_ms and self._skips and self._has_own_clock:
            settlement = msgspec.structs.replace(settlement, delay_ms=0)
        with self._store.transaction() as tx:
            tx.jobs.settle([settlement], self.holder)
        return settlement.state

    # jobs

    def perform(self, claim: Claim) -> Performed:
        """Performs a job and writes its outcome."""
        crew = next(crew for crew in self._crews.values() if crew.plan.queue == claim.queue)
        context = _Context(self, crew, claim)
        result: Any = None
        try:
            try:
                text = self._perform(crew, claim, context)
                outcome: Outcome = Done(text, tuple(context.enqueued))
                result = codec.from_json(text, None, "the result")
            except (errors.ConfigurationError, errors.UnrecoverableError, KeyboardInterrupt):
                if context.settled is None:
                    self.give_back(claim)
                raise
            except errors.WorkerBroken as error:
                outcome = Crashed(describe(error))
            except BaseException as error:  # sys.exit() is a failure of the job, too
                outcome = _failure(claim, error, crew)
        finally:
            self.files.remove_scratch(claim.id, claim.number)
        settlement = settle(
            claim, outcome, kept=context.kept, backoff=crew.plan.backoff, policy=self.hand.settings.jobs
        )
        assert settlement is not None
        state = State.DONE if context.settled is not None else self._write(settlement)
        return Performed(
            crew=crew.name, id=claim.id, payload=codec.from_json(claim.payload, None, "the payload"),
            attempt=claim.failures + 1, outcome=settlement.outcome or "", state=state, result=result,
            error=settlement.error,
        )  # fmt: skip

    def _perform(self, crew: Crew[Any, Any], claim: Claim, context: _Context) -> str:
        here = self._handler(crew)
        kept = None if claim.kept is None else codec.from_json(claim.kept, None, "the checkpoint")
        return here.perform(
            here.payload_of(claim.payload, f"the payload of job {claim.id}"), context, id=claim.id, queue=claim.queue,
            label=claim.label and codec.restore(claim.label), item=claim.item and codec.restore(claim.item),
            attempt=claim.failures + 1, flow=claim.flow, kept=kept, traceparent=claim.traceparent,
            meta=None if claim.meta is None else codec.from_json(claim.meta, None, "meta"),
        )  # fmt: skip

    def _handler(self, crew: Crew[Any, Any]) -> Foreground:
        """Returns the handler of a crew, which is set up on first use."""
        plan = crew.plan
        if plan.name not in self._handlers:
            with mock.patch.object(handler, "inside_worker", True):
                here = Foreground(perform.make(plan.handler, perform.load(plan.handler, plan.batch, plan.concurrency)))
            here.handler.threads = plan.threads
            here.set_up()
            self._stack.callback(here.tear_down)
            self._handlers[plan.name] = here
        return self._handlers[plan.name]


def _failure(claim: Claim, error: BaseException, crew: Crew[Any, Any]) -> Outcome:
    """Returns the outcome of an exception, as a worker reports it and a node reads it."""
    rules = {"retry_on": crew.plan.retry_on, "give_up_on": crew.plan.give_up_on}
    frame = _frame(perform.failure_frame({"id": claim.id, "fence": claim.number}, error, rules))
    return outcome_of(frame.kind, outcomes.decode(frame.body))


def _frame(data: bytes) -> Frame:
    (frame,) = Decoder(FRAME_LIMIT).feed(data)
    assert isinstance(frame, Frame)
    return frame


def _order(claim: Claim) -> tuple[int, int]:
    return -claim.priority, claim.seq


def _row(crew: Crew[Any, Any]) -> CrewRow:
    plan = crew.plan
    return CrewRow(
        name=plan.name, queue=plan.queue, handler=plan.handler, workers=1, max_attempts=plan.max_attempts,
        timeout_ms=plan.timeout_ms, priority=plan.priority, limit=plan.limit, limit_per_key=plan.limit_per_key,
        rate=plan.rate, rate_per_key=plan.rate_per_key,
    )  # fmt: skip
