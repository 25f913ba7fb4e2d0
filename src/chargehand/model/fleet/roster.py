"""The places of a node and their changes: started, stopped, given up, removed. The fleet decides when.

Pure.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from chargehand.model.fleet.admission import TURN, Admission
from chargehand.model.fleet.breaker import Breakers
from chargehand.model.fleet.death import Cause, Evidence, Reason
from chargehand.model.fleet.ending import Ending
from chargehand.model.fleet.lifecycle import (
    Action,
    BreakerClosed,
    BreakerOpened,
    Dismiss,
    Forgiven,
    GivenUp,
    Removed,
    Replace,
    Report,
    Spawn,
    Status,
)
from chargehand.model.fleet.place import After, Place
from chargehand.model.fleet.policy import (
    GiveUpOn,
    History,
    LivenessPolicy,
    Restart,
    RestartPolicy,
    StartPolicy,
    Terms,
    after_crash,
)
from chargehand.model.fleet.slots import Slots
from chargehand.model.fleet.watch import Watch

AT_WORK = (Status.HEALTHY, Status.PAUSED)
AFTER_A_LOOK = 1.0
"""How many seconds an idle worker stays at least: after `discover`, so that it can receive the jobs it found; if
another waits for its memory, so that it can receive the job for which it was started."""


class Roster:
    """All places of a node, and the operations that start and stop their workers."""

    def __init__(
        self,
        crews: Mapping[str, Terms],
        restart: RestartPolicy,
        liveness: LivenessPolicy,
        starts: StartPolicy,
        jitter: Callable[[], float],
    ) -> None:
        self.crews, self._restart, self._liveness, self._jitter = dict(crews), restart, liveness, jitter
        self._watch, self._ending, self._breakers = Watch(liveness), Ending(liveness), Breakers(restart)
        self._slots = Slots(liveness)
        self._admission = Admission(starts, self.crews)
        self._pauses: Collection[str] = ()
        self._begun = self.stopping = False
        self._lives: dict[str, int] = {}
        """The number of incarnations of each component; kept when the place is removed, so that none is repeated."""
        self._totals: dict[str, int] = {}
        """The number of restarts of each component in all lives of the node; kept when the place is removed."""
        self._unsaved: set[str] = set()
        self._occupied: dict[str, int] = {}
        """The pids of unkillable processes of an earlier node, by component."""
        self.places: dict[str, Place] = {}
        for crew, terms in self.crews.items():
            for index in range(terms.workers):
                self.add(crew, index)

    def add(self, crew: str, index: int) -> Place:
        """Adds an empty place."""
        place = Place(f"worker:{crew}:{index}", crew, index, concurrency=self.crews[crew].concurrency)
        place.life = self._lives.get(place.component, 0)
        place.restarts_total = self._totals.get(place.component, 0)
        place.paused = self._is_paused(place)
        self.places[place.component] = place
        if self._begun:  # a person scaled the crew up: what is kept of an earlier worker of this name is void
            self._unsaved.add(place.component)
        return place

    def unsaved(self) -> set[str]:
        """Returns the workers whose crashes or restarts have changed since the last call: the store is to keep them."""
        found, self._unsaved = self._unsaved, set()
        return found & self.places.keys()

    @property
    def occupied(self) -> Collection[str]:
        """The components, existing or not, whose earlier process cannot be killed."""
        return tuple(self._occupied)

    def restarts(self) -> dict[str, int]:
        """Returns the number of restarts of each crew, which never falls: those of removed workers are included."""
        found = dict.fromkeys(self.crews, 0)
        for component, count in self._totals.items():
            crew = component.removeprefix("worker:").rpartition(":")[0]
            found[crew] = found.get(crew, 0) + count
        return found

    @property
    def breakers(self) -> Mapping[str, str]:
        """The crews with an open breaker, each with the cause and the probe."""
        return {crew: f"{found.cause}; only {found.probe} is restarted" for crew, found in self._breakers.open.items()}

    def take_waiting(self) -> list[str]:
        """Returns the components whose reason to wait has changed since the last call."""
        found = list(self._admission.waiting)
        self._admission.waiting.clear()
        return found

    def crew(self, name: str) -> list[Place]:
        """Returns the places of a crew."""
        return [place for place in self.places.values() if place.crew == name]

    # starting
    def start(self, place: Place) -> None:
        """Starts a worker in an empty place as soon as it is admitted."""
        if place.component in self._occupied:
            place.start_at, place.after, place.why_leave, place.reason = None, None, None, Reason.NOT_STARTED
            place.text = f"unkillable: an earlier process of this worker (pid {self._occupied[place.component]}) runs"
        elif self._begun and not self.stopping:
            place.after, place.why_leave, place.behind_breaker = None, None, False
            self._admission.join(place)

    def admitted(self, now: float) -> list[Action]:
        """Starts the workers that are admitted now."""
        actions: list[Action] = []
        while (place := self._admission.admit(self.places, now)) is not None:
            if place.status is Status.CRASHED:
                place.history.restarts += 1
                place.restarts_total += 1
                place.restarted_at = now
                self._totals[place.component] = place.restarts_total
                self._unsaved.add(place.component)
            place.begin(now, self._liveness.set_up)
            self._lives[place.component] = place.life
            self._watch.begin(place)
            actions.append(Spawn(place.component, place.life))
        self.make_room(now)
        return actions

    def make_room(self, now: float) -> None:
        """Lets a worker exit that its next job starts again, if another waits for the memory that it declares: one that
        is idle, soon; after TURN, one that is busy, as soon as it holds no job. One at a time."""
        short = self._admission.short()
        if short is None:
            return
        holding = [place for place in self.places.values() if self._admission.holds(place, short.short_of)]
        if any(place.asked or place.why_leave is not None or place.verdict is not None for place in holding):
            return  # what this one holds is free soon
        able = [place for place in holding if place.status in AT_WORK and self.crews[place.crew].idle_exit is not None]
        idle = [place for place in able if place.rest_at is not None and place.sleep_at is not None]
        if idle:
            longest = min(idle, key=lambda place: (place.rest_at or now) - (self.crews[place.crew].idle_exit or 0.0))
            soon = max(now, longest.free_at + AFTER_A_LOOK)
            longest.sleep_at = soon if longest.sleep_at is None else min(longest.sleep_at, soon)
        elif short.short_since is not None and now - short.short_since >= TURN and able:
            busy = min(able, key=lambda place: place.ready_at or 0.0)
            busy.why_leave, busy.after = Reason.GAVE_WAY, After.START

    # stopping and crashing
    def stopped(self, place: Place) -> list[Action]:
        """Completes a planned stop, and performs what was planned after it."""
        place.reason, place.start_at = place.why_leave or Reason.STOPPED, None
        place.text = str(place.reason)
        reports: list[Action] = []
        if place.reason is Reason.SUSPECT:
            place.text = f"{place.reason}: {place.suspicion}"
            reports.append(_report(place, False, "restarted at once"))
        if place.after is After.REMOVE:
            del self.places[place.component]
            return [*reports, Removed(place.component)]
        if place.after is After.START:
            self.start(place)
        return reports

    def _unwanted(self, place: Place, charged: bool) -> list[Action] | None:
        """Completes the crash of a worker that was to stop anyway; None if it was not."""
        if not self.stopping and place.after not in (After.STAY, After.REMOVE):
            return None
        place.move(Status.STOPPED)
        report = _report(place, charged, "not restarted: it was to stop anyway")
        reason, text = place.reason, place.text
        actions = self.stopped(place)
        place.reason, place.text = reason, text
        return [report, *actions]

    def replaced(self, place: Place, reason: Reason, words: str) -> list[Action]:
        """Restarts a worker at once after its job timed out or was cancelled; only the job is charged."""
        place.move(Status.CRASHED)
        place.reason, place.text = reason, words
        unwanted = self._unwanted(place, charged=False)
        if unwanted is not None:
            return unwanted
        self.start(place)
        return [_report(place, False, "restarted at once"), Replace(place.component, words, 0.0)]

    def crashed(
        self,
        place: Place,
        reason: Reason,
        words: str,
        *,
        charge: bool,
        cause: Cause | None,
        now: float,
        fatal: bool = False,
    ) -> list[Action]:
        """Handles an unplanned death. `cause` is set if the worker held no job."""
        place.move(Status.CRASHED)
        place.reason, place.text = reason, words
        place.history.add(now, charge=charge)
        self._unsaved.add(place.component)
        if cause is not None:
            place.idle_crash_at, place.idle_crash_cause = now, cause
        unwanted = self._unwanted(place, charge)
        if unwanted is not None:
            return unwanted
        short = words if place.error is None or "\n" not in words else place.error.line
        decision = GiveUpOn(words) if fatal else after_crash(self._restart, place.history, now, self._jitter())
        match decision:
            case GiveUpOn(why):
                text = why if fatal else f"{why}; the last: {short}"
                return [_report(place, charge, f"given up: {text}"), *self._give_up(place, text)]
            case Restart(at):
                place.start_at, place.after = at, None
                report = _report(place, charge, f"restarted in {at - now:.{1 if at - now >= 1 else 2}f} s")
                opened = self._trip(place.crew, now)
                if place.behind_breaker:
                    waits = "waits: another worker of its crew is restarted first"
                    return [msgspec.structs.replace(report, follows=waits), *opened]
                return [report, *opened, Replace(place.component, words, at - now)]

    def _trip(self, crew: str, now: float) -> list[Action]:
        """Opens the crew's breaker if this crash requires it; all workers but the probe leave the line."""
        opened = self._breakers.crashed(crew, self.crew(crew), now)
        for place in self.crew(crew):
            if place.behind_breaker:
                self._admission.leave(place)
        return [BreakerOpened(crew, opened.cause, opened.probe)] if opened else []

    def _give_up(self, place: Place, text: str) -> list[Action]:
        """Gives up a worker; if it is the probe of a breaker, the waiting workers of the crew as well."""
        place.move(Status.FAILED)
        place.text, place.start_at, place.behind_breaker = text, None, False
        actions: list[Action] = [GivenUp(place.component, text)]
        found = self._breakers.open.get(place.crew)
        if found is not None and found.probe == place.component:
            del self._breakers.open[place.crew]
            for other in self.crew(place.crew):
                if other.behind_breaker:
                    other.error = place.error
                    actions += self._give_up(other, f"{place.component}, the probe of its crew, was given up: {text}")
        return actions

    def close_breaker(self, crew: str, why: str) -> list[Action]:
        """Closes the crew's breaker and restarts its other workers."""
        if self._breakers.open.pop(crew, None) is None:
            return []
        for place in self.crew(crew):
            if place.behind_breaker:
                self.start(place)
        return [BreakerClosed(crew, why)]

    # orders
    def stop(self, place: Place, after: After, why: Reason, now: float) -> list[Action]:
        """Stops a worker within the grace period, if it is running."""
        self._admission.leave(place)
        place.start_at, place.behind_breaker = None, False
        if place.status is Status.FAILED and after is not After.REMOVE:
            return []
        self.plan(place, after, why)
        if place.status in (Status.CRASHED, Status.ASLEEP):
            place.move(Status.STOPPED)
        if not place.alive:
            return self.stopped(place)
        if place.status is Status.STOPPING or place.verdict is not None:
            return []  # it is already stopping
        return self._ending.ask(place, now)

    def leave(self, place: Place, after: After, why: Reason, now: float) -> list[Action]:
        """Stops a worker as soon as it holds no job."""
        if place.status in AT_WORK and place.job is not None and place.verdict is None:
            self.plan(place, after, why)
            return [Dismiss(place.component)]
        return self.stop(place, after, why, now)

    def plan(self, place: Place, after: After, why: Reason) -> None:
        """Plans what follows when the worker has exited; a planned removal is not changed."""
        if place.resting and place.verdict is None:
            place.move(Status.STOPPING)
        if place.after is not After.REMOVE:
            place.after, place.why_leave = after, why

    def forgive(self, place: Place) -> list[Action]:
        """Clears the crash history of a place."""
        place.history = History()
        self._unsaved.add(place.component)
        place.done_at_crash = place.idle_crash_at = None
        return [Forgiven(place.component)] if place.status is Status.FAILED else []

    def renew(self, place: Place) -> None:
        """Sets the restart count to 0, because an operator starts the worker; this start is not a restart."""
        place.history.restarts = 0
        self._unsaved.add(place.component)
        if place.status is Status.CRASHED:
            place.move(Status.STOPPED)

    def pauses_of(self, place: Place) -> list[str]:
        """Returns the paused scopes that include this worker."""
        return [scope for scope in ("*", place.crew, place.component) if scope in self._pauses]

    def _is_paused(self, place: Place) -> bool:
        return bool(self.pauses_of(place))


def _report(place: Place, charged: bool, follows: str) -> Report:
    assert place.reason is not None
    assert place.text is not None
    evidence, place.evidence = place.evidence, Evidence()
    return Report(
        component=place.component, reason=place.reason, text=place.text, charged=charged, follows=follows,
        evidence=evidence,
    )  # fmt: skip
