"""The node: it connects the fleet, the ledger, the supervisor, the store thread and the control socket.

The main thread waits for pidfds, sockets and timers; the store thread makes every store call. Neither waits for the
other.
"""

import os
import random
import resource
import signal
import socket
from collections.abc import Sequence
from types import FrameType
from typing import Any

import msgspec

from chargehand import __version__, clock, codec, log
from chargehand.errors import EXIT_ERROR, EXIT_STORE, summary
from chargehand.model import chores
from chargehand.model.batch import NOTHING, Batch, Finished, Result
from chargehand.model.diary import Diary
from chargehand.model.drain import DrainState
from chargehand.model.failover import Comparison
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import GpusRead, Status
from chargehand.model.fleet.pace import Pace
from chargehand.model.health import judge, will_work
from chargehand.model.job import FINISHED, Claim, Settlement, State
from chargehand.model.lease import CutOff, longest_end
from chargehand.model.ledger import Ledger
from chargehand.model.records import CrewRow, Holder, NodeAbout
from chargehand.model.status import NodeStatus, StoreStatus, UnkillableProcess
from chargehand.model.wakeups import POLL_UNNOTIFIED, Looks, Wakeup
from chargehand.node.fingerprint import fingerprint
from chargehand.node.followers import Followers
from chargehand.node.gpus import Gpus
from chargehand.node.health_rows import HealthRows
from chargehand.node.hooks import HookJobs
from chargehand.node.inbox import Inbox
from chargehand.node.job_files import JobFilesThread
from chargehand.node.listening import Listening
from chargehand.node.live import Live
from chargehand.node.log_buffer import LogBuffer
from chargehand.node.lookups import Lookups, NotRead
from chargehand.node.loop import Channel, Loop, one_by_one
from chargehand.node.output import OutputLine
from chargehand.node.own_files import OwnFiles
from chargehand.node.reader import Reader
from chargehand.node.replies import answer_at_once, answer_enqueue, is_answered_at_once, refuse, waits
from chargehand.node.requests import Requests
from chargehand.node.results import read_page
from chargehand.node.server import Documents, Server
from chargehand.node.stacks import StackRequests
from chargehand.node.store_thread import (
    WATCH_EVERY,
    Failure,
    Looked,
    LostClaims,
    News,
    Opened,
    OthersWrote,
    Recovered,
    StoreThread,
    Unanswered,
    Unusable,
)
from chargehand.node.subscribers import Subscribers
from chargehand.node.supervisor import Supervisor
from chargehand.processes import proc
from chargehand.processes.nvidia import Tool
from chargehand.processes.record import ProcessRecord
from chargehand.protocol.frame import BadFrame, Frame, encode
from chargehand.protocol.worker import ResultsFrame, refused_page
from chargehand.settings.plan import NodePlan
from chargehand.stores import open_listener, open_store
from chargehand.stores.location import locate

PLAN_LIMIT = 16 << 20
TAKEOVER_LIMIT = 5.0
LAST_WORDS = 5.0
"""Seconds that a stopping node waits for the store after its last worker is gone."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
LONGEST_WAIT = 60.0
MOST_ERRORS, ERROR_WINDOW = 3, 60.0
KEY_LOCKED = "another transaction, which has not ended, enqueues a job with the same key"
BEATS_A_LEASE = 3
"""A node of a store for many nodes beats at least so many times within its lease."""
BRISK = 0.001
"""Seconds after a turn during which the node only handles what arrives: nothing else is that urgent."""
SWEEP_EVERY = 60.0
"""Seconds between two sweeps of flows in a store for many nodes; each is part of a heartbeat."""
UNSUCCESSFUL = (State.FAILED, State.CANCELLED)
UNKILLABLE_EVERY = 0.5
"""Seconds between two checks of processes that a SIGKILL did not end."""


class Node:
    """One run of a node process. `step` is one turn of its loop; `run` repeats it until the node has stopped."""

    def __init__(self, plan: NodePlan, tether: socket.socket, lock: int | None, log_buffer: LogBuffer) -> None:
        self._plan = plan
        self._started_ms = clock.now_ms()
        self._loop = Loop()
        self._tether = Channel(
            self._loop, tether, PLAN_LIMIT, one_by_one(self._on_tether), lambda _: self.stop("the host is gone")
        )
        self._location = locate(plan.store, plan.node)
        self._lives = ProcessRecord(self._location.lives, self._location.mark)
        self._unkillable = self._lives.end_earlier(TAKEOVER_LIMIT)
        self._look_at = now = clock.monotonic()
        self._pace = Pace(now)
        chance = random.Random()
        starts = plan.starts
        if starts.memory is None:
            starts = msgspec.structs.replace(starts, memory=proc.memory_of_machine())
        self._fleet = Fleet(
            {crew.name: crew.terms() for crew in plan.crews}, plan.restart, plan.liveness, starts, chance.random
        )
        discovering = [crew.name for crew in plan.crews if crew.discovers]
        batching = {crew.name: (crew.batch, crew.batch_wait_ms / 1000) for crew in plan.crews}
        queues = [(crew.name, crew.queue) for crew in plan.crews]
        limited = {crew.queue for crew in plan.crews if crew.limit is not None or crew.limit_per_key is not None}
        rated = {crew.queue for crew in plan.crews if crew.rate is not None or crew.rate_per_key is not None}
        self._followers = Followers()
        self._hooks = HookJobs(plan)
        self._ledger = Ledger(
            queues,
            chance.random,
            now,
            discovering,
            batching,
            limited,
            self._followers.by_job,
            plan.jobs,
            plan.discovery,
            rated,
            {crew.name: crew.concurrency for crew in plan.crews},
            {crew.queue: crew.backoff for crew in plan.crews if crew.backoff is not None},
            None if plan.hooks.on_failed is None else self._hooks.failed,
        )
        self._supervisor = Supervisor(self._loop, plan, self._fleet, self._ledger, self._lives, self)
        self._supervisor.files_owner = self._location.files_owner(plan.files)
        self._supervisor.keep_free(self._unkillable)
        stopping = [crew.name for crew in plan.crews if crew.when_cut_off == "stop"]
        self._cut_off: CutOff | None = None
        """Set if others may take the jobs of this node, and some of its crews stop before."""
        self._shares_searches = False
        """Whether this node has crews that discover, and other nodes may have them, too."""
        beat = plan.liveness.node_beat
        if self._location.server is not None:
            beat = min(beat, plan.liveness.lease / BEATS_A_LEASE)
            self._ledger.lead((), now)  # until the store has answered for which crews this node looks
            self._shares_searches = bool(discovering)
            if stopping:
                self._cut_off = CutOff(plan.liveness.lease, longest_end(plan.liveness), now)
                beat = min(beat, self._cut_off.beat_every)
        self._stopping_crews = frozenset(stopping)
        self._submitted_at = now
        self._health_rows = HealthRows(
            self._fleet, self._ledger, self._supervisor.handles, now=now, beat=beat,
            history=plan.retention.history_every_ms / 1000 if plan.history else None,
            shared=None if self._location.server is None else self._about,
        )  # fmt: skip
        self._diary = Diary()
        self._store = self._store_thread(plan)
        self._loop.add(self._store.ready, lambda _: self._hear())
        self._looks = Looks()
        self._listening: Listening | None = None
        """Set if the store notifies its nodes."""
        if (server := self._location.server) is not None:
            self._listening = Listening(lambda stale: open_listener(server, stale))
            self._store.watch_every = POLL_UNNOTIFIED
            self._loop.add(self._listening.ready, lambda _: self._notified())
        self._reader = Reader(lambda: open_store(plan.store, create=False))
        self._loop.add(self._reader.ready, lambda _: self._see())
        self._lookups = Lookups(lambda: open_store(plan.store, create=False))
        self._loop.add(self._lookups.ready, lambda _: self._lookups.handle())
        self._job_files = (
            None
            if plan.files is None
            else JobFilesThread(plan.files, lambda: open_store(plan.store, create=False), self._supervisor.files_owner)
        )
        self._sweep_at: float | None = None
        """When what other nodes have left undone in flows is completed next; None: there are no other nodes."""
        self._gpus = Gpus(Tool(plan.nvidia_smi), self._fleet)
        self._loop.add(self._gpus.ready, lambda _: self._read_gpus())
        self._live = Live(
            self._lives.life, plan, self._fleet, self._ledger, self._supervisor.handles, self._reader,
            lambda: (self._requests.unserved, self._failing, self._ledger.blind, self._requests.others.gone),
            shared=self._location.server is not None,
        )  # fmt: skip
        # Events of the supervisor that come with every job go to the subscribers directly.
        self.began, self.worked, self.heard = self._live.began, self._live.worked, self._live.heard
        self._subscribers = Subscribers(self._live)
        self._requests = Requests(
            plan, self._fleet, self._ledger, self._supervisor, self._live, self._followers,
            self._lookups, self._job_files, shared=self._location.server is not None,
        )  # fmt: skip
        self._stacks = StackRequests(self._fleet, self._supervisor.handles)
        self._server = Server(
            self._loop, self._location.socket, _raise_descriptor_limit() // 2, self._requests, self._subscribers,
            self._followers, self._stacks, log_buffer, Documents(self.status, self._past, self._history),
        )  # fmt: skip
        self._inbox = Inbox(self._ledger, self._server.carry_out)
        self._files = OwnFiles(self._loop, self._server, self._location, lock)
        self._sleeping = [crew.name for crew in plan.crews if crew.idle_exit is not None]
        """Crews with an idle timeout, whose workers end when they have no work."""
        self._open = False
        self._brisk_until = 0.0
        self._unusable: str | None = None
        self._failing: str | None = None
        self._failing_code: str | None = None
        self._pause = FIRST_PAUSE
        self._stopping: str | None = None
        self._gone_at: float | None = None

    def _store_thread(self, plan: NodePlan) -> StoreThread:
        crews = [
            CrewRow(
                name=c.name, queue=c.queue, handler=c.handler, workers=c.workers, max_attempts=c.max_attempts,
                timeout_ms=c.timeout_ms, priority=c.priority, limit=c.limit, limit_per_key=c.limit_per_key,
                rate=c.rate, rate_per_key=c.rate_per_key, hide=c.hide,
            )
            for c in plan.crews
        ]  # fmt: skip
        own = proc.stat(os.getpid())
        start = own.start if own else None
        about = NodeAbout(
            pid=os.getpid(), start=start, boot=proc.boot_id(), pid_namespace=proc.pid_namespace(),
            machine=socket.gethostname(), version=__version__, lease=plan.liveness.lease,
            stops=any(crew.when_cut_off == "stop" for crew in plan.crews),
        )  # fmt: skip
        holder = Holder(plan.node, self._lives.life)
        return StoreThread(
            lambda: open_store(
                plan.store, node=True, synchronous=plan.synchronous, policy=plan.jobs, on_failed=self._hooks.all_failed
            ),
            holder,
            crews,
            about,
            plan.retention,
            self._spare(),
            self._lives.earlier_was_asked,
            lambda: {crew.name: fingerprint(crew, [*map(codec.restore, plan.python_path)]) for crew in plan.crews},
            waits,
            plan.jobs,
            answer_at_once,
            self._location.written,
            self._hooks.all_failed,
        )

    def _spare(self) -> tuple[str, ...]:
        """Returns the workers of earlier nodes that cannot be killed: they keep their claims."""
        return tuple({life.component for life in self._unkillable})

    def _look_at_the_unkillable(self, now: float) -> None:
        left = [life for life in self._unkillable if proc.alive(life.pid, life.start)]
        self._look_at = now + UNKILLABLE_EVERY
        if len(left) < len(self._unkillable):
            self._unkillable = left
            self._supervisor.keep_free(left)
            self._store.recover(self._spare())

    # the loop

    def run(self) -> int:
        """Run until stopped. Returns the exit code."""
        self._store.start()
        log.info(
            "node started", event=log.Event.NODE_STARTED, node=self._plan.node, pid=os.getpid(),
            store=self._location,
            crews=",".join(f"{c.name}:{c.workers}" for c in self._plan.crews),
        )  # fmt: skip
        self._errors: list[float] = []
        while not self._finished():
            try:
                self.step()
            except Exception:
                if not self._carry_on():
                    return EXIT_ERROR
        self._gpus.stop()
        if self._listening is not None:
            self._listening.stop()
        self._reader.rest(1.0)
        self._lookups.stop(1.0)
        if self._job_files is not None:
            self._job_files.stop(1.0)
        self._store.stop()
        self._store.join(1.0)
        self._server.close()
        if not self._files.replaced:
            self._lives.forget()
        log.info(
            "node stopped",
            event=log.Event.NODE_STOPPED,
            node=self._plan.node,
            pid=os.getpid(),
            reason=self._unusable or self._stopping,
        )
        return EXIT_STORE if self._unusable else 0

    def _carry_on(self) -> bool:
        """Log an unexpected error. Returns whether to go on: after three in a minute the host starts another node."""
        log.error("unexpected error in the supervision loop", event=log.Event.SUPERVISION_ERROR, trace=True)
        now = clock.monotonic()
        self._errors = [when for when in self._errors if when > now - ERROR_WINDOW] + [now]
        if len(self._errors) < MOST_ERRORS:
            return True
        log.error(
            "too many unexpected errors; the node exits, and its host starts another",
            event=log.Event.SUPERVISION_ABORTED,
            count=MOST_ERRORS,
        )
        return False

    def step(self) -> None:
        """Submit what is due to the store, wait for events, decide, act. Only the wait blocks."""
        before = clock.monotonic()
        late = self._forgive(before)
        while before < self._brisk_until and not late:
            ready = self._loop.wait(0)
            if not ready:
                break
            self._handle(ready)
            before = clock.monotonic()
            late = self._forgive(before)
        batch_at = self._submit(before) if self._open else None
        supervise_at = self._supervisor.next_due() or before + LONGEST_WAIT
        tend_at = self._tend_due(before) if self._open else before + LONGEST_WAIT
        timeout = self._timeout(before, min(supervise_at, tend_at, batch_at or supervise_at))
        ready = self._loop.wait(timeout)
        late |= self._forgive(clock.monotonic(), timeout)  # before any worker is judged
        self._handle(ready)
        now = clock.monotonic()
        late |= self._forgive(now)
        if late or now >= supervise_at:
            self._supervisor.tick(now, late=late)
        if self._unkillable and now >= self._look_at:
            self._look_at_the_unkillable(now)
        self._check_files(now)
        if self._open and now >= tend_at:
            self._tend(now)
        if self._listening is not None and (look_at := self._looks.due()) is not None and now >= look_at:
            self._look(now)
        if self._cut_off is not None and self._open and self._cut_off.is_over(now):
            self._stop_work(now)
        if now >= self._gpus.due():
            self._gpus.ask(now)
        if now >= self._stacks.due():
            self._stacks.step(now)
        if self._requests.drain.state is DrainState.DRAINING:
            self._check_drain(now)
        for crew in self._sleeping:
            self._ledger.pools[crew].asleep = self._fleet.could_wake(crew)
        if self._live.watched or now >= self._live.due():
            self._live.step(now)
            self._subscribers.send()
        self._brisk_until = now + BRISK

    def _handle(self, ready: list[tuple[int, int]]) -> None:
        """Handle what is ready. Requests to enqueue go to the store at once, before all else: their callers wait."""
        self._loop.handle(ready)
        if self._requests.enqueuing:
            self._requests.enqueuing = False
            if self._open:
                self._submit(clock.monotonic())

    def _check_files(self, now: float) -> None:
        """Stop if another node has taken the lock, whose file was deleted."""
        self._files.check(now)
        if self._files.replaced:
            self.stop("another node serves the store: the lock file was deleted")

    def _forgive(self, now: float, waited: float = 0.0) -> bool:
        """Shift every deadline by the time for which this process was held up. Returns whether it was."""
        over = self._pace.late(now, waited)
        if over:
            self._fleet.late(over)
        return over > 0

    def _tend_due(self, now: float) -> float:
        """Returns when `_tend` has something to do."""
        due = now + LONGEST_WAIT
        if self._gone_at is None:
            ledger, requests = self._ledger, self._requests
            fire_at = None if self._fleet.stopping else requests.fire_due(now)
            others = (requests.pauses_due, ledger.looks_due(), ledger.gathered_due(now), ledger.recalls_due(), fire_at)
            for moment in (self._health_rows.due(), *others):
                if moment is not None and moment < due:
                    due = moment
        return due

    def _tend(self, now: float) -> None:
        """Do what is due beside the work: health rows, expired pauses, recurring jobs, looks, gathered batches."""
        if now >= self._health_rows.due() and self._gone_at is None:
            self._supervisor.beat()
            self._diary.weigh(self._fleet.places, clock.now_ms())
            found = self._health_rows.chores(now, self._failing, self._requests.drain.state)
            if chores.LookAtQueues() in found:
                found.append(chores.ExpireJobs())
                if self._shares_searches:
                    found.append(self._lead(now))
                if self._sweep_at is not None and now >= self._sweep_at:
                    self._sweep_flows(now)
            for chore in found:
                self._ledger.chore(chore, now)
        if self._requests.pauses_due is not None and now >= self._requests.pauses_due:
            self._requests.pauses_due = None
            self._ledger.chore(chores.LookAtPauses(), now)
        if not self._fleet.stopping:
            self._requests.fire(now)
        self._supervisor.call_back_due(now)
        for component, todo in (*self._ledger.looks(now), *self._ledger.gathered(now)):
            self._supervisor.hand_out(component, todo)

    def _sweep_flows(self, now: float) -> None:
        """Complete what other nodes have left undone, and those before this one."""
        self._ledger.chore(chores.SweepFlows(), now)
        self._sweep_at = None if self._location.server is None else now + SWEEP_EVERY

    def _lead(self, now: float) -> chores.Lead:
        """Returns the question for which crews this node calls `discover`."""
        staffed = {place.crew for place in self._fleet.places.values() if will_work(place) and not place.paused}
        return chores.Lead(*self._ledger.leading(staffed, self._requests.others.served, now))

    def _timeout(self, now: float, due: float) -> float:
        if self._gone_at is not None:
            due = min(due, self._gone_at + LAST_WORDS)
        if self._unkillable:
            due = min(due, self._look_at)
        if self._cut_off is not None and self._open:
            due = min(due, self._cut_off.due() or due)
        if self._listening is not None and (look_at := self._looks.due()) is not None:
            due = min(due, look_at)
        due = min(due, self._live.due(), self._gpus.due(), self._stacks.due(), self._files.due())
        return min(max(0.0, due - now), LONGEST_WAIT)

    def _submit(self, now: float) -> float | None:
        """Submit a batch to the store if one is due. Returns when the next one is, if that is known."""
        due = self._ledger.batch_due(now)
        if due is None or due > now + 0.0005:
            return due
        batch = self._ledger.next_batch(now)
        if batch == NOTHING:
            self._ledger.confirm(Result(), now)
            return self._ledger.batch_due(now)
        self._submitted_at = now
        self._store.submit(batch)
        return None

    def _finished(self) -> bool:
        if self._unusable is not None:
            return True
        if self._stopping is None or not self._supervisor.gone:
            return False
        now = clock.monotonic()
        if self._gone_at is None:
            self._gone_at = now
            if self._open and not self._files.replaced:
                self._ledger.chore(chores.Wipe(), now)
        return self._ledger.settled or now >= self._gone_at + LAST_WORDS

    # results from the store thread

    def _hear(self) -> None:
        for news in self._store.take():
            self._heard(news)

    def _heard(self, news: News) -> None:
        now = clock.monotonic()
        match news:
            case Comparison():
                self._compare(news, now)
            case LostClaims(held):
                self._disown(held, now)
            case Opened():
                self._open = True
                if self._cut_off is not None:
                    self._cut_off.beaten(now, now)
                self._requests.opened(news, now)
                self._sweep_flows(now)
                if self._job_files is not None:
                    self._job_files.start()
                if self._listening is not None:
                    self._listening.start()
                if self._shares_searches:
                    self._ledger.chore(self._lead(now), now, urgent=True)
                self._tether.send(encode("READY", {"pid": os.getpid()}))
            case Recovered(settlements, died):
                if self._job_files is not None:
                    self._job_files.sweep_now()  # not before: a folder stays as long as its claim
                if settlements:
                    log.warning(
                        "jobs of a node that died were released; only one of them runs at a time until they have ended"
                        if died
                        else "jobs of an earlier node were released",
                        count=len(settlements),
                    )
                    self._ledger.hint()
                for settlement in settlements:
                    if settlement.outcome == "crashed":
                        _tell_failure(settlement)
            case Unusable(why):
                self._unusable = why
                log.error("the store cannot be used", why=why)
                self._tether.send(encode("FAILED", {"code": EXIT_STORE, "why": why}))
            case Failure(why, code, beaten):
                if beaten:
                    self._beaten(now)
                self._store_failed(why, code, now)
            case OthersWrote():
                self._ledger.others_wrote(now)
            case Looked(queues, took):
                if took is not None:
                    self._looks.ended(found=bool(queues), took=took)
                for queue in queues:
                    self._ledger.hint(queue)
            case Unanswered(left):
                for token, enqueued in left:
                    answer_enqueue(token, enqueued)
            case Result():
                self._committed(news, now)
            case Finished(flows, woken):
                self._ledger.woken(woken, now)
                self._live.ended(flows)
                for flow in flows:
                    self._followers.flow_ended(flow)

    def _notified(self) -> None:
        """Find out soon what other processes have written."""
        assert self._listening is not None
        now = clock.monotonic()
        for what in self._listening.take():
            if what is Wakeup.ORDERS:
                self._ledger.others_wrote(now)
            else:
                self._looks.notified(what, now)
        self._store.watch_every = WATCH_EVERY if self._listening.connected else POLL_UNNOTIFIED

    def _look(self, now: float) -> None:
        """Ask the store which queues have jobs for workers that are free."""
        queues = self._ledger.notified(now)
        self._looks.begin(now)
        if queues:
            self._store.look(queues)
        else:
            self._looks.ended(found=False)

    def _stop_work(self, now: float) -> None:
        """Cancel the jobs of crews that must not overlap: the lease of this node ends soon."""
        self._supervisor.call_back()
        running = self._ledger.cut_off(self._stopping_crews, now)
        log.error(
            "the node is cut off from the store; jobs that must not overlap with those of other nodes are cancelled",
            crews=sorted(self._stopping_crews), jobs=len(running), lease=self._plan.liveness.lease,
        )  # fmt: skip
        for component, job in running:
            self._supervisor.act(self._fleet.cancel(component, job, now))
        self._supervisor.spread()

    def _disown(self, held: frozenset[tuple[int, int]], now: float) -> None:
        """Cancel the jobs that other nodes have taken."""
        self._supervisor.call_back()
        running = self._ledger.keep_only(held)
        log.warning(
            "jobs of this node that other nodes have taken are cancelled", node=self._plan.node, kept=len(held),
            cancelled=len(running),
        )  # fmt: skip
        for component, job in running:
            self._supervisor.act(self._fleet.cancel(component, job, now))
        self._supervisor.spread()

    def _compare(self, found: Comparison, now: float) -> None:
        """Repeat the outcomes that the server of the store has lost, and cancel the jobs whose claims it has lost."""
        self._supervisor.call_back()
        running, repeated, released = self._ledger.compare(found, now)
        if found.replaced or repeated or released:
            log.warning(
                "the server of the store was replaced" if found.replaced else "the server has lost its last commits",
                event=log.Event.STORE_REPLACED, node=self._plan.node, outcomes_repeated=repeated,
                outcomes_unknown=found.unknown, jobs_queued_again=released, jobs_cancelled=len(running),
            )  # fmt: skip
        for component, job in running:
            self._supervisor.act(self._fleet.cancel(component, job, now))
        self._supervisor.spread()

    def _store_failed(self, why: str, code: str, now: float) -> None:
        if why != self._failing:
            log.error("the store fails; outcomes are kept and written later", why=why)
        self._failing, self._failing_code = why, code
        for request in self._ledger.failed(now, self._pause):
            refuse(request.token, why, "StoreError", code=code)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _committed(self, result: Result, now: float) -> None:
        batch = self._ledger.in_flight
        assert batch is not None
        if self._failing is not None:
            log.info("the store works again")
        self._failing, self._failing_code, self._pause = None, None, FIRST_PAUSE
        self._beaten(now)
        if overtaken := self._ledger.overtaken(result):
            self._supervisor.call_back(overtaken)
        # Hand out jobs first: workers wait for them. Answers to callers come second.
        for component, claim in self._ledger.confirm(result, now):
            self._supervisor.hand_out(component, claim)
        self._supervisor.replace_distrusted()
        if result.dropped:
            log.warning("requests were dropped: their callers had stopped waiting", count=len(result.dropped))
        if result.postponed is not NOTHING:
            batch = self._without_postponed(batch, result.postponed)
        if not is_answered_at_once(result):
            for token, enqueued in result.enqueued:
                answer_enqueue(token, enqueued)
        self._requests.committed(batch, result, now)
        if result.asked is not None:
            self._inbox.receive(result.asked)
        self._live.committed(batch, result, now)
        claimed = any(grant.claims for grant in result.grants)
        if batch.settlements or claimed:
            self._health_rows.worked(now)
        if self._listening is not None and result.grants:
            self._looks.claimed(any_job=claimed)
        if batch.settlements:
            self._diary.ended(batch.settlements, result.lost, clock.now_ms())
        for flow in result.ended_flows:
            self._followers.flow_ended(flow)
        self._check_awaited(batch, result)
        for job_id, _ in result.lost:
            log.warning("an outcome was refused: its claim no longer holds", event=log.Event.OUTCOME_LATE, job=job_id)
        for settlement in batch.settlements:
            if settlement.outcome == "done" or settlement.state in FINISHED:
                self._followers.ended(settlement.id)
            if settlement.outcome not in (None, "done") and settlement.claim_name not in result.lost:
                _tell_failure(settlement)

    def _check_awaited(self, batch: Batch, result: Result) -> None:
        """Look which awaited jobs have ended, if followers of jobs may have failed in this batch."""
        ended = any(each.state in UNSUCCESSFUL for each in batch.settlements)
        for chore, done in zip(batch.chores, result.done, strict=True):
            ended |= isinstance(chore, chores.ExpireJobs | chores.SweepFlows | chores.CancelJobs) and bool(done)
        if ended:
            self._requests.look_at_awaited()

    def _beaten(self, now: float) -> None:
        """Record that the last turn has reached the store: other nodes know that this one lives."""
        if self._cut_off is None:
            return
        if self._cut_off.beaten(self._submitted_at, now):
            self._ledger.reconnected(now)
        elif self._cut_off.is_over(now):
            self._stop_work(now)  # before jobs are handed out that could not end in time

    def _without_postponed(self, batch: Batch, left: Batch) -> Batch:
        """Refuses the requests that the store could not write, and returns the batch that it has written."""
        for request in left.requests:
            refuse(request.token, KEY_LOCKED, "StoreBusy")
        return batch.without(left)

    def _see(self) -> None:
        for seen, took in self._reader.take():
            self._live.seen(seen, took, clock.monotonic())

    def _read_gpus(self) -> None:
        for reading in self._gpus.take():
            self._supervisor.tell(GpusRead(reading))
        for place in self._fleet.places.values():
            if place.gpus:
                self._live.worked(place.component)

    # what the supervisor reports

    def left(self, claims: Sequence[Claim]) -> None:
        if self._job_files is not None:
            self._job_files.left(claims)

    def asked(self, component: str, question: ResultsFrame) -> None:
        handle = self._supervisor.handles[component]

        def answer(found: bytes | NotRead) -> None:
            if handle.work is not None:  # closed if the worker has exited
                handle.work.send(refused_page(question, found.why) if isinstance(found, NotRead) else found)

        self._lookups.ask(lambda store: read_page(store, question), answer)

    def ended(self, component: str, job_id: str, seconds: float, flows: Sequence[str]) -> None:
        self._followers.ended(job_id)
        for flow in flows:
            self._followers.flow_ended(flow)
        self._ledger.hint()
        self._live.settled(job_id)
        self._diary.done(component, job_id, int(seconds * 1000), clock.now_ms())

    def keep(self, chore: chores.Chore) -> None:
        if isinstance(chore, chores.KeepReport):
            report = chore.report
            self._ledger.tally.crashed(report.crew, report.reason)
            self._diary.crashed(report.component, report.text, report.pid, clock.now_ms())
            chore = chores.KeepReport(report, self._hooks.crashed(report))
        self._ledger.chore(chore, clock.monotonic())

    def given_up(self, component: str, reason: str) -> None:
        crew = self._fleet.places[component].crew
        left = sum(each.crew == crew and each.status is not Status.FAILED for each in self._fleet.places.values())
        jobs = self._hooks.given_up(component, crew, reason, left)
        self.keep(chores.KeepGivenUp(self._requests.mark(component, reason), jobs))

    def restarted(self, component: str) -> None:
        self.keep(self._requests.restarts(component))

    def changed(self, component: str) -> None:
        self._health_rows.changed(component, clock.monotonic())
        self._live.changed(component)
        place = self._fleet.places.get(component)
        if place is not None:
            self._diary.changed(place, clock.now_ms())
        else:
            self._diary.removed(component, clock.now_ms())

    def said(self, component: str, line: OutputLine) -> None:
        about: dict[str, Any] = {"event": log.Event.WORKER_OUTPUT, "component": component, "job": line.job}
        if line.logger is None:
            log.at(line.level, "worker says", **about, line=line.text)
            return
        about |= {"logger": line.logger, "exception": line.exception}
        about |= {name: each for name, each in (("flow", line.flow), ("trace", line.trace)) if each is not None}
        extra = {
            f"{name}_" if name in (*log.RESERVED, "flow", "trace", *about) else name: each
            for name, each in line.extra.items()
        }
        log.record(line.level, line.text, {**about, **extra})

    # documents for callers

    def _about(self, now: float) -> dict[str, Any]:
        """Returns what the node's health row tells others: it is left when the node is gone."""
        return {
            "machine": socket.gethostname(), "version": __version__, "started_ms": self._started_ms,
            "rates": self._live.rates(now),
        }  # fmt: skip

    def _past(self) -> list[dict[str, Any]]:
        return self._live.past.view(clock.now_ms())

    def _history(self, component: str) -> dict[str, Any] | None:
        now = clock.now_ms()
        found = self._diary.view(component, now)
        return None if found is None else {"component": component, "node": self._plan.node, "at_ms": now, **found}

    def status(self) -> NodeStatus:
        busy, workers = self._store.busy_since, self._requests.workers()
        unserved, blind = self._requests.unserved, self._ledger.blind
        return NodeStatus(
            node=self._plan.node,
            pid=os.getpid(),
            version=__version__,
            started_ms=self._started_ms,
            stopping=self._stopping,
            store=StoreStatus(
                address=str(self._location),
                failing=self._failing,
                code=self._failing_code,
                waiting_s=None if busy is None else round(clock.monotonic() - busy, 3),
                notified=None if self._listening is None else self._listening.connected,
                unnotified=None if self._listening is None else self._listening.why,
            ),
            unkillable=tuple(UnkillableProcess(component=life.component, pid=life.pid) for life in self._unkillable),
            tally=self._ledger.tally.view(self._live.broker.dropped, self._fleet.restarts()),
            workers=workers,
            breakers=dict(self._fleet.breakers),
            paused=self._requests.paused,
            unserved=unserved,
            blind=blind,
            drain=self._requests.drain.state,
            suspect_after=self._plan.jobs.suspect_after,
            verdict=judge(workers, unserved, store_failing=self._failing, blind=blind, gone=self._requests.others.gone),
        )

    # stopping

    def _on_tether(self, _: Channel, frame: Frame | BadFrame) -> None:
        if isinstance(frame, Frame) and frame.kind == "PING":
            self._tether.send(encode("PONG", {}))
        elif isinstance(frame, Frame) and frame.kind == "STOP":
            self.stop("the host asked")
        elif isinstance(frame, Frame) and frame.kind == "KILL":
            self.stop("the host asked, and waits no longer")
            self._supervisor.kill_all()

    def stop(self, why: str) -> None:
        """Stop gracefully: let current jobs finish within the grace period, settle them, stop the workers."""
        if self._stopping is not None:
            return
        self._stopping = why
        if not self._files.replaced:
            self._lives.stopping()
        log.info("node stopping", event=log.Event.NODE_STOPPING, reason=why)
        now = clock.monotonic()
        self._supervisor.call_back()
        self._ledger.close(now)
        if self._location.server is not None:
            self._ledger.chore(chores.RecordStop(), now, urgent=True)
        self._supervisor.stop()

    def _check_drain(self, now: float) -> None:
        """Report if the node is drained, and end it if that was asked for: its host starts no other then."""
        drain = self._requests.drain
        if not drain.check(self._fleet.places.values(), settled=self._ledger.has_nothing):
            return
        ends = drain.ends
        log.info("node drained", event=log.Event.NODE_DRAINED, node=self._plan.node, ends=ends)
        self._health_rows.beat_soon(now)
        if ends:
            self._tether.send(encode("DRAINED", {}))
            self.stop("the node is drained")

    def watch_signals(self) -> None:
        """Stop gracefully on SIGTERM. SIGINT is left to the host; SIGCHLD only wakes the loop."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, _only_wake)

        def woken(_: int) -> None:
            if signal.SIGTERM in os.read(reading, 4096):
                self.stop("SIGTERM")

        self._loop.add(reading, woken)


def _tell_failure(settlement: Settlement) -> None:
    """Log an attempt that did not succeed, and what follows."""
    about: dict[str, Any] = {
        "job": settlement.id, "queue": settlement.queue, "item": settlement.item, "outcome": settlement.outcome,
    }  # fmt: skip
    error = summary(settlement.error)
    if settlement.state is State.FAILED:
        log.error("job failed", event=log.Event.JOB_FAILED, **about, reason=settlement.reason, error=error)
    elif settlement.state is State.CANCELLED:
        log.info("job cancelled", **about)
    elif settlement.outcome != "interrupted":
        log.warning("job will be tried again", **about, in_s=settlement.delay_ms / 1000, error=error)


def _raise_descriptor_limit() -> int:
    """Raise the limit of open files to the hard limit: a worker needs three, a caller one. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(hard, 1 << 16)


def _only_wake(number: int, frame: FrameType | None) -> None:
    """Do nothing: Python writes to the wake-up descriptor only for signals that have a handler."""
