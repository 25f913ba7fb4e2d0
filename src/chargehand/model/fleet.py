"""The supervisor's mind: for every worker's place, what happened, what that means, and what is to be done.

Pure: events and the time come in, actions go out. It never sees a process, a socket or a store. Whoever reports
`Exited` has already read the worker's sockets to the end and ended whatever it left behind, so a place that is
filled again never overlaps its old life.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from chargehand.errors import EXIT_CONFIGURATION, EXIT_UNRECOVERABLE
from chargehand.model.lifecycle import (
    ALIVE,
    TRANSITIONS,
    Action,
    Ask,
    Broken,
    Event,
    Examine,
    Examined,
    Exited,
    Framed,
    GivenUp,
    Kill,
    MoreTime,
    NotStarted,
    Occupied,
    Replace,
    Spawn,
    Started,
    Status,
    StopAsked,
    Terminate,
    Tick,
)
from chargehand.model.policy import GiveUpOn, History, LivenessPolicy, Restart, RestartPolicy, after_crash

LONGEST_LOAD = 86_400.0
"""Seconds that a worker may ask for at once."""


class Place(msgspec.Struct):
    """One worker's place in its crew, through all its lives."""

    component: str
    crew: str
    index: int
    status: Status = Status.STOPPED
    life: int = 0
    pid: int | None = None
    reason: str | None = None
    verdict: str | None = None
    restarts: int = 0
    history: History = msgspec.field(default_factory=History)
    due: float | None = None
    """When the next thing must be looked at: restart, start limit, silence, end of the grace."""
    ready_at: float | None = None
    heard: bool = False
    framed_at: float = 0.0
    started_at: float = 0.0
    load_until: float = 0.0
    stage: int = 0
    """How far a stop has gone (0 not asked, 1 asked, 2 terminated, 3 killed)."""
    cpu: float | None = None
    done_at_crash: int = 0


class Fleet:
    """All places of a node. `handle` is the whole interface; `places` may be read."""

    def __init__(
        self,
        crews: Iterable[tuple[str, int]],
        restart: RestartPolicy,
        liveness: LivenessPolicy,
        jitter: Callable[[], float],
        now: float,
    ) -> None:
        self._restart, self._liveness, self._jitter = restart, liveness, jitter
        self.stopping = False
        self.places = {
            place.component: place
            for crew, count in crews
            for index in range(count)
            for place in (Place(f"worker:{crew}:{index}", crew, index, due=now),)
        }

    def next_due(self) -> float | None:
        """The earliest moment at which a Tick would do something."""
        return min((p.due for p in self.places.values() if p.due is not None), default=None)

    def all_gone(self) -> bool:
        """Whether no worker process is left."""
        return not any(p.status in ALIVE for p in self.places.values())

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take note of what happened; say what to do."""
        match event:
            case Started(component, pid):
                place = self.places[component]
                place.pid = pid
                return []
            case NotStarted(component, why):
                return self._crashed(self.places[component], why, charge=True, now=now)
            case Occupied(component, pid):
                return self._occupied(self.places[component], pid, now)
            case Framed(component, status):
                return self._framed(self.places[component], status, now)
            case MoreTime(component, seconds):
                place = self.places[component]
                place.load_until = max(place.load_until, now + min(seconds, LONGEST_LOAD))
                if place.status is Status.STARTING:
                    place.due = self._deadline(place)
                return []
            case Examined(component, cpu):
                return self._examined(self.places[component], cpu, now)
            case Broken(component):
                place = self.places[component]
                again = place.status not in ALIVE or place.verdict == "bad frame"
                return [] if again else self._kill(place, "bad frame", now)
            case Exited():
                return self._exited(self.places[event.component], event, now)
            case StopAsked():
                return self._stop(now)
            case Tick(late):
                return self._tick(late, now)
            case _:
                assert_never(event)

    def _move(self, place: Place, status: Status) -> None:
        if status is place.status:
            return
        if status not in TRANSITIONS[place.status]:
            raise AssertionError(f"{place.component}: {place.status} → {status} is not in the table")
        place.status = status

    def _occupied(self, place: Place, pid: int | None, now: float) -> list[Action]:
        if place.status is not Status.STOPPED or self.stopping:
            return []
        if pid is not None:
            place.due, place.reason = None, f"unkillable: an earlier life of it (pid {pid}) is still there"
        elif place.due is None:
            place.due, place.reason = now, None
        return []

    # a worker speaks

    def _framed(self, place: Place, status: str, now: float) -> list[Action]:
        if place.status not in ALIVE:
            return []
        place.heard, place.framed_at, place.cpu = True, now, None
        if place.status is Status.STARTING and status in ("healthy", "paused"):
            self._move(place, Status(status))
            place.ready_at = now
        elif place.status in (Status.HEALTHY, Status.PAUSED) and status in ("healthy", "paused"):
            self._move(place, Status(status))
        elif status == "stopping" and place.status is not Status.STOPPING:
            # Somebody sent it a SIGTERM: it takes nothing more. That it goes was not our wish, so it will be `exited`.
            place.verdict = place.verdict or "exited"
            self._move(place, Status.STOPPING)
            place.stage, place.due = 1, now + self._liveness.grace
            return [Ask(place.component)]
        if place.status is not Status.STOPPING:
            place.due = self._deadline(place)
        return []

    def _deadline(self, place: Place) -> float:
        """When silence is to be looked at: half-way, for a first reading of the CPU time, and at the limit."""
        if place.status is Status.STARTING and not place.heard:
            return place.started_at + self._liveness.first_frame
        silence = place.framed_at + self._liveness.silent / (2 if place.cpu is None else 1)
        return min(silence, place.load_until) if place.status is Status.STARTING else silence

    # a worker is gone

    def _exited(self, place: Place, event: Exited, now: float) -> list[Action]:
        how = f"signal {event.signal}" if event.signal else f"exit code {event.exit_code}"
        place.pid, place.due = None, None
        if place.status is Status.STOPPING and place.verdict is None:
            self._move(place, Status.STOPPED)
            place.reason = "stopped"
            return []
        reason = place.verdict or ("crash" if event.signal or event.exit_code else "exited")
        text = event.said or f"{reason} ({how})"
        # A job may call sys.exit(2) for reasons of its own; a worker that means it says so, or has no job.
        meant = event.said is not None or not event.had_job
        fatal = meant and event.exit_code in (EXIT_CONFIGURATION, EXIT_UNRECOVERABLE)
        charge = not event.had_job or event.crew_done == place.done_at_crash
        place.done_at_crash = event.crew_done
        return self._crashed(place, text, charge=charge, now=now, fatal=fatal)

    def _crashed(self, place: Place, reason: str, *, charge: bool, now: float, fatal: bool = False) -> list[Action]:
        self._move(place, Status.CRASHED)
        place.reason, place.pid = reason, None
        if place.ready_at is not None and now - place.ready_at >= self._restart.healthy_after:
            place.history.rest(now)
            if now - place.ready_at >= self._restart.forgive_after:
                place.history.forgive()
        place.history.add(now, charge=charge)
        if self.stopping:
            self._move(place, Status.STOPPED)
            place.due = None
            return []
        decision = GiveUpOn(reason) if fatal else after_crash(self._restart, place.history, now, self._jitter())
        match decision:
            case GiveUpOn(why):
                self._move(place, Status.FAILED)
                place.reason = why if fatal else f"{why}; the last: {reason}"
                place.due = None
                return [GivenUp(place.component, place.reason)]
            case Restart(at):
                place.due = at
                return [Replace(place.component, reason, at - now)]

    # time passes

    def _tick(self, late: float, now: float) -> list[Action]:
        actions: list[Action] = []
        for place in self.places.values():
            if late and place.status in ALIVE:
                place.framed_at += late
                place.started_at += late
                place.load_until += late
                if place.due is not None:
                    place.due += late
            if place.due is not None and place.due <= now:
                actions += self._due(place, now)
        return actions

    def _due(self, place: Place, now: float) -> list[Action]:
        match place.status:
            case Status.STOPPED | Status.CRASHED:
                return self._spawn(place, now)
            case Status.STOPPING:
                return self._press(place, now)
            case Status.STARTING if now >= place.load_until:
                return self._kill(place, "start timeout", now)
            case Status.STARTING if not place.heard:
                return self._kill(place, "start timeout", now)
            case Status.STARTING | Status.HEALTHY | Status.PAUSED:
                # Not before the reading that this asks for has come: a second look is planned far away.
                place.due = now + self._liveness.silent
                return [Examine(place.component)]
            case Status.FAILED:
                place.due = None
                return []

    def _spawn(self, place: Place, now: float) -> list[Action]:
        if place.status is Status.CRASHED:
            place.restarts += 1
        self._move(place, Status.STARTING)
        place.life += 1
        place.ready_at, place.verdict, place.stage, place.cpu, place.heard = None, None, 0, None, False
        place.started_at = place.framed_at = now
        place.load_until = now + self._liveness.set_up
        place.due = self._deadline(place)
        return [Spawn(place.component, place.life)]

    def _examined(self, place: Place, cpu: float | None, now: float) -> list[Action]:
        if place.status not in ALIVE or place.status is Status.STOPPING:
            return []
        silent_for = now - place.framed_at
        if silent_for < self._liveness.silent / 2:
            place.due = self._deadline(place)
            return []
        if cpu is None:  # it is dead, but something that it left is not yet
            place.due = now + self._liveness.silent / 2
            return []
        if place.cpu is not None and cpu == place.cpu and silent_for >= self._liveness.silent:
            return self._kill(place, "heartbeat timeout", now)
        first = place.cpu is None
        place.cpu = cpu
        # Silent but working: C code holds the interpreter. It is looked at again, and never killed for being busy.
        place.due = place.framed_at + self._liveness.silent if first else now + self._liveness.silent / 2
        return []

    def _kill(self, place: Place, reason: str, now: float) -> list[Action]:
        if place.verdict == reason:
            place.reason = f"unkillable: pid {place.pid} did not die of a SIGKILL ({reason})"
        place.verdict, place.due = reason, now + self._liveness.terminate
        return [Kill(place.component, reason)]

    # stopping

    def _stop(self, now: float) -> list[Action]:
        self.stopping = True
        actions: list[Action] = []
        for place in self.places.values():
            if place.status is Status.CRASHED:
                self._move(place, Status.STOPPED)
            if place.status not in ALIVE:
                place.due = None
            elif place.status is not Status.STOPPING:
                self._move(place, Status.STOPPING)
                place.verdict, place.stage, place.due = None, 1, now + self._liveness.grace
                actions.append(Ask(place.component))
        return actions

    def _press(self, place: Place, now: float) -> list[Action]:
        place.stage += 1
        place.due = now + self._liveness.terminate
        if place.stage == 2:
            return [Terminate(place.component)]
        if place.stage > 3:
            place.reason = f"unkillable: pid {place.pid} did not die of a SIGKILL (grace over)"
        return [Kill(place.component, "grace over")]
