"""The supervisor's decisions: for every worker's place, what an event means and which actions follow.

Pure: events and the time come in, actions go out; processes, sockets and stores are not accessed. The caller reports
`Exited` only after it has read the worker's sockets to the end and killed the worker's descendants, so that two
incarnations of a place never overlap.
"""

from collections.abc import Collection, Mapping
from typing import assert_never

from chargehand.errors import summary
from chargehand.model.doctor.wording import place_in
from chargehand.model.fleet.cards import Reading, figures, unmeasured
from chargehand.model.fleet.death import Cause, Reason, crash_line, reason_of
from chargehand.model.fleet.lifecycle import (
    Action,
    Broken,
    CancelJob,
    Event,
    Examined,
    Exited,
    Framed,
    GpusRead,
    MoreTime,
    NotStarted,
    Occupied,
    PausesChanged,
    SetPaused,
    Started,
    Status,
    StopAsked,
    Suspected,
    Tick,
    Unsound,
    WorkWaits,
)
from chargehand.model.fleet.place import After, Place
from chargehand.model.fleet.policy import History
from chargehand.model.fleet.roster import AFTER_A_LOOK, AT_WORK, Roster


class Fleet(Roster):
    """All places of a node. The supervisor calls `begin`, `handle`, `began`, `ended`, `let_go`, and reads `places`."""

    def begin(
        self,
        now: float,
        failed: Mapping[str, str] | None = None,
        past: Mapping[str, tuple[History, int]] | None = None,
    ) -> list[Action]:
        """Starts all workers except those in `failed`, which an earlier incarnation of the node gave up.

        `past` has what earlier incarnations kept of a worker: its history, and the number of its restarts in total.
        """
        self._begun = True
        for component, (history, total) in (past or {}).items():
            self._totals[component] = total
            if component in self.places:
                self.places[component].history, self.places[component].restarts_total = history, total
        for place in self.places.values():
            why = (failed or {}).get(place.component)
            if why is not None:
                place.status, place.text = Status.FAILED, why  # restored, not a transition
            else:
                self.start(place)
        return self.admitted(now)

    def next_due(self) -> float | None:
        """Returns the earliest time at which a Tick has an effect."""
        due = [place.due() for place in self.places.values()]
        due += [self._admission.next_due(), *self._breakers.next_due(self.places)]
        return min((moment for moment in due if moment is not None), default=None)

    def all_gone(self) -> bool:
        """Whether no worker process exists."""
        return not any(place.alive for place in self.places.values())

    def handle(self, event: Event, now: float) -> list[Action]:
        """Processes an event and returns the actions that follow."""
        return [*self._handle(event, now), *self.admitted(now)]

    def _handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case Started(component, pid):
                self.places[component].pid = self.places[component].last_pid = pid
                return []
            case NotStarted(component, why):
                place = self.places[component]
                place.end()
                self._admission.look_again()
                cause = Cause(Reason.NOT_STARTED, None, None, why)
                return self.crashed(place, Reason.NOT_STARTED, why, charge=True, cause=cause, now=now)
            case Occupied(component, pid):
                return self._found_occupied(component, pid)
            case Framed(component):
                return self._framed(self.places[component], event, now)
            case MoreTime(component, seconds):
                place = self.places[component]
                if place.alive and place.verdict is None:
                    self._watch.more_time(place, seconds, now)
                return []
            case Examined(component):
                return self._examined(self.places[component], event, now)
            case Broken(component):
                place = self.places[component]
                again = not place.alive or place.verdict is not None
                return [] if again else self._ending.kill(place, Reason.BAD_FRAME, now)
            case Unsound(component):
                place = self.places[component]
                again = not place.alive or place.verdict is not None
                return [] if again else self._ending.expect_exit(place, Reason.BROKEN, now)
            case Exited():
                return self._exited(self.places[event.component], event, now)
            case StopAsked():
                return self._stop_all(now)
            case PausesChanged(scopes):
                return self._pauses_changed(scopes)
            case WorkWaits(crew, count):
                return self._wake(crew, count)
            case GpusRead(reading):
                return self._gpus_read(self._admission.read(reading, now))
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    # starting

    def _found_occupied(self, component: str, pid: int | None) -> list[Action]:
        before = self._occupied.pop(component, None)
        if pid is not None:
            self._occupied[component] = pid
        place = self.places.get(component)
        if place is None:  # the place was removed; it may be added again
            return []
        if pid is not None:
            self._admission.leave(place)
        if place.status is Status.STOPPED and place.after is None and (pid is not None or before is not None):
            self.start(place)
        return []

    def could_wake(self, crew: str) -> int:
        """Returns how many waiting jobs matter: one per sleeping worker, plus those for workers that are starting."""
        sleepers = len(self._sleepers(crew))
        return sleepers + self._coming(crew) if sleepers else 0

    def _sleepers(self, crew: str) -> list[Place]:
        """Returns the sleeping workers of a crew that could be started."""
        return [place for place in self.crew(crew) if place.asleep and not place.in_line and not place.paused]

    def _coming(self, crew: str) -> int:
        """Returns how many workers of a crew are starting or about to start."""
        return sum(place.in_line or place.status is Status.STARTING for place in self.crew(crew))

    def _wake(self, crew: str, count: int) -> list[Action]:
        """Starts as many sleeping workers as there are waiting jobs."""
        for place in self._sleepers(crew)[: max(0, count - self._coming(crew))]:
            self.start(place)
        return []

    # GPUs
    def uses_gpus(self) -> bool:
        """Whether a worker that needs GPUs runs, or is due to start."""
        crews = {crew for crew, terms in self.crews.items() if terms.gpus is not None}
        return any(place.crew in crews and (place.alive or place.in_line) for place in self.places.values())

    @property
    def gpus_unread(self) -> bool:
        """Whether a worker waits for a reading of the GPUs."""
        return self._admission.unread

    def _gpus_read(self, reading: Reading) -> list[Action]:
        cards = {card.uuid: card for card in reading.cards}
        for place in self.places.values():
            held = [(gpu, cards.get(gpu.uuid)) for gpu in place.gpus]
            place.gpus = tuple(unmeasured(g) if card is None else figures(card, reading, place.pid) for g, card in held)
        return []

    # frames of a worker
    def _framed(self, place: Place, event: Framed, now: float) -> list[Action]:
        if not place.alive or place.verdict not in (None, Reason.EXITED):
            return []
        status = event.status
        if place.status is Status.STARTING and status in AT_WORK:
            place.ready_at = now
            place.well_at = place.history.rest_due(self._restart, now)
            self._watch.turned(place, now)
            self._admission.look_again()
            self._idle(place, now)
        if place.status in (Status.STARTING, *AT_WORK) and status in AT_WORK:
            place.move(Status(status))
        elif status == Status.STOPPING and not place.asked:
            # A SIGTERM from outside: it accepts no more jobs. It was not asked to stop, so its reason is `exited`.
            place.verdict = Reason.EXITED
            return self._ending.ask(place, now)
        place.memory = event.memory or place.memory
        if place.asked:
            return []
        found = self._watch.framed(place, event.turns, now)
        if isinstance(found, Reason):
            return self._ending.condemn(place, found, now)
        return [*found, *self._recycled(place, now)]

    def _examined(self, place: Place, reading: Examined, now: float) -> list[Action]:
        if not place.alive or place.asked or place.verdict:
            return []
        found = self._watch.examined(place, reading, now)
        return [] if found is None else self._ending.condemn(place, found, now)

    # jobs of a worker
    def began(self, component: str, job: str, timeout: float | None, now: float, others: Collection[str] = ()) -> None:
        """Records that the worker was given this job, and the others of its batch."""
        place = self.places[component]
        if place.concurrency > 1:
            place.sleep_at = None
            if self._slots.began(place, job, timeout, now):
                self._watch.turned(place, now)
            return
        place.job, place.endless = job, timeout is None
        if others:
            place.others.update(others)
        place.job_until = None if timeout is None else now + timeout
        place.sleep_at = None
        self._watch.turned(place, now)

    def ended(self, component: str, now: float, *, job: bool = True, jobs: int = 1) -> bool:
        """Records that the worker's job (or so many) or call of `discover` has ended; returns whether it may receive
        another."""
        place = self.places[component]
        if job:  # the idle time begins now, also if a call of `discover` follows
            place.jobs += jobs
            rest = self.crews[place.crew].idle_exit
            place.rest_at = None if rest is None else now + rest
        place.job, place.job_until, place.cancel_at, place.endless = None, None, None, False
        if place.recalled:
            place.recalled.clear()
        self._watch.turned(place, now)
        return place.status in AT_WORK and place.verdict is None and not self._worn(place)

    def one_ended(self, component: str, job: str, now: float) -> None:
        """Records that one job of a batch has ended; the worker continues with the others."""
        place = self.places[component]
        place.jobs += 1
        if job == place.job:
            place.job = place.others.pop()
        else:
            place.others.discard(job)
        if job in place.recalled:
            place.recalled.discard(job)
            if place.cancel_at is not None:  # the deadline of jobs cancelled later starts anew
                place.cancel_at = now + self._liveness.cancel if place.recalled else None
        self._watch.turned(place, now)

    def slot_ended(self, component: str, job: str, now: float, *, work: bool = True) -> bool:
        """Records that one of several jobs (`work`) or a call of `discover` has ended; returns whether the worker may
        receive another job."""
        place = self.places[component]
        self._slots.ended(place, job)
        if work:
            place.jobs += 1
            rest = self.crews[place.crew].idle_exit
            place.rest_at = None if rest is None else now + rest
        self._watch.turned(place, now)
        return place.status in AT_WORK and place.verdict is None and not self._worn(place)

    def cancel(self, component: str, job: str, now: float) -> list[Action]:
        """Cancels a job that this worker holds; the worker is replaced if the job does not end in time."""
        place = self.places[component]
        has = job == place.job or job in place.others
        if not has or place.status not in AT_WORK or place.verdict is not None or job in place.recalled:
            return []
        if place.slots:
            return self._slots.cancel(place, job, now)
        place.recalled.add(job)
        if place.cancel_at is None:
            place.cancel_at = now + self._liveness.cancel
        return [CancelJob(component, job)]

    def distrust(self, component: str, text: str, now: float) -> list[Action]:
        """Replaces a worker, uncharged, as soon as it holds no job, because of the jobs that it failed."""
        place = self.places[component]
        if place.status not in AT_WORK or place.verdict is not None or place.why_leave is not None:
            return []
        place.why_leave, place.after, place.suspicion = Reason.SUSPECT, After.START, text
        return [Suspected(component, text), *self._recycled(place, now)]

    def let_go(self, component: str, now: float) -> list[Action]:
        """Records that the worker received no further job: it is stopped now if it is to leave."""
        place = self.places[component]
        if place.status not in AT_WORK or place.asked or place.verdict is not None:
            return []
        self._idle(place, now)
        self.make_room(now)
        return self._recycled(place, now)

    def _idle(self, place: Place, now: float) -> None:
        """Plans when an idle worker exits. A call of `discover` is not work, but the jobs it found may still come."""
        rest = self.crews[place.crew].idle_exit
        place.free_at = now
        if rest is None:
            place.rest_at = place.sleep_at = None
            return
        if place.rest_at is None:
            place.rest_at = now + rest
        place.sleep_at = max(place.rest_at, now + min(rest, AFTER_A_LOOK))

    def _worn(self, place: Place) -> bool:
        """Whether the worker is to leave: it has reached a recycling limit, or was asked to leave."""
        terms = self.crews[place.crew]
        return (
            place.why_leave is not None
            or (terms.recycle_jobs is not None and place.jobs >= terms.recycle_jobs)
            or (terms.recycle_memory is not None and place.jobs > 0 and place.memory > terms.recycle_memory)
        )

    def _recycled(self, place: Place, now: float) -> list[Action]:
        """Stops an idle worker that is to leave."""
        if place.status not in AT_WORK or place.asked or place.job is not None or not self._worn(place):
            return []
        if place.why_leave is None:
            place.why_leave, place.after = Reason.RECYCLED, After.START
        return self._ending.ask(place, now)

    # exit of a worker
    def _exited(self, place: Place, event: Exited, now: float) -> list[Action]:
        death, ready_at = event.death, place.ready_at
        if place.gpus:
            self._admission.freed(now)
        self._admission.look_again()
        place.end()
        place.exit_code, place.signal, place.evidence = death.exit_code, death.signal, event.evidence
        place.history.rested(self._restart, ready_at, now)
        if place.asked and place.verdict is None:
            place.move(Status.ASLEEP if place.resting else Status.STOPPED)
            return self.stopped(place)
        reason = reason_of(death, place.verdict)
        text = f"{reason} ({death.how})"
        said = death.said or summary(death.broken)
        words = f"{text}: {said}" if said else text
        place.error = crash_line(
            reason, words, signal=death.signal, where=place_in(event.evidence.stacks), loading=ready_at is None
        )
        if reason in (Reason.JOB_TIMEOUT, Reason.CANCELLED):
            return self.replaced(place, reason, words)
        again = place.done_at_crash is not None and place.done_at_crash == event.crew_done
        place.done_at_crash = event.crew_done
        charge = again or not death.had_job
        cause = None if death.had_job else Cause(reason, death.exit_code, death.signal, text)
        return self.crashed(place, reason, words, charge=charge, cause=cause, now=now, fatal=death.fatal)

    # time
    def late(self, seconds: float) -> None:
        """Extends the deadlines of running workers by a delay of the supervisor itself; call it before `handle`."""
        for place in self.places.values():
            if place.alive:
                place.shift(seconds)

    def _tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for place in list(self.places.values()):
            actions += self._due(place, now)
        for crew in list(self._breakers.open):
            due = self._breakers.due(crew, self.places)
            if due is not None and due <= now:
                actions += self.close_breaker(crew, "the probe has run long enough, or was removed")
        return actions

    def _due(self, place: Place, now: float) -> list[Action]:
        """Performs what is due for one place."""
        if place.start_at is not None and place.start_at <= now:
            self.start(place)
        elif place.press_at is not None and place.press_at <= now:
            return self._ending.press(place, now)
        elif place.slots and place.job_until is not None and place.job_until <= now:
            late = self._slots.due(place, now)
            return self._ending.condemn(place, late, now) if isinstance(late, Reason) else late
        elif place.job_until is not None and place.job_until <= now:
            return self._ending.condemn(place, Reason.JOB_TIMEOUT, now)
        elif place.cancel_at is not None and place.cancel_at <= now:
            return self._ending.condemn(place, Reason.CANCELLED, now)
        elif place.look_at is not None and place.look_at <= now:
            found = self._watch.look(place, now)
            return self._ending.condemn(place, found, now) if isinstance(found, Reason) else found
        elif place.sleep_at is not None and place.sleep_at <= now:
            place.why_leave, place.after = Reason.IDLE, After.SLEEP
            return self._ending.ask(place, now)
        elif place.well_at is not None and place.well_at <= now:
            self._rest(place, now)
        return []

    def _rest(self, place: Place, now: float) -> None:
        """Clears the part of the history that a long healthy run clears."""
        assert place.ready_at is not None
        place.history.rested(self._restart, place.ready_at, now)
        place.well_at = place.history.rest_due(self._restart, place.ready_at)
        self._unsaved.add(place.component)

    def _stop_all(self, now: float) -> list[Action]:
        self.stopping = True
        self._breakers.open.clear()
        actions: list[Action] = []
        for place in list(self.places.values()):
            after = After.REMOVE if place.after is After.REMOVE else After.STAY
            actions += self.stop(place, after, place.why_leave or Reason.STOPPED, now)
        return actions

    def _pauses_changed(self, scopes: Collection[str]) -> list[Action]:
        self._pauses = frozenset(scopes)
        actions: list[Action] = []
        for place in self.places.values():
            paused = self._is_paused(place)
            if place.paused is not paused:
                place.paused = paused
                if place.alive:
                    actions.append(SetPaused(place.component, paused))
        return actions
