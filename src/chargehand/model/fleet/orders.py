"""The orders of operators, and their answers: every order answers at once with what will happen.

Pure: it changes the fleet and returns the fleet's actions. Orders are idempotent.
"""

from enum import StrEnum

import msgspec

from chargehand.errors import ConfigurationError, UnknownCrew
from chargehand.model.fleet.death import Reason
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import Action, Forgiven, Status
from chargehand.model.fleet.place import After, Place
from chargehand.model.records import Pause

MOST_WORKERS = 1000
LONGEST_PAUSE_MS = 366 * 86_400_000


class Verb(StrEnum):
    """All orders."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    RESTART = "restart"
    RESET = "reset"
    SCALE = "scale"


def replacing(before: Pause | None) -> str:
    """Returns what a new pause replaces, as the end of an answer; empty if there was no pause."""
    if before is None:
        return ""
    end = "had no end" if before.left_ms is None else f"had {before.left_ms / 1000:.0f} s left"
    return f"; this replaces the pause by {before.who} ({before.reason or 'no reason was given'}), which {end}"


def detail_of(text: str | None, for_ms: int | None) -> str | None:
    """Returns the detail of an order in the operator log: for how long, and why or how many."""
    if for_ms is None:
        return text
    return f"for {for_ms / 1000:g} s" + (f": {text}" if text else "")


class AnswerCode(StrEnum):
    """The meaning of an answer, for programs; its text is for people and may change."""

    STARTS = "starts"
    RUNS = "runs"
    RESTARTS = "restarts"
    WAITS = "waits"
    STOPS = "stops"
    STOPPED = "stopped"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    GIVEN_UP = "given_up"
    PAUSED = "paused"
    RESUMED = "resumed"
    NOT_PAUSED = "not_paused"
    QUEUED = "queued"
    NOT_RETRIED = "not_retried"
    CONFLICT = "conflict"
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    NOT_CANCELLED = "not_cancelled"
    DELETED = "deleted"
    NOT_DELETED = "not_deleted"
    WOKEN = "woken"
    NO_ANSWER = "no_answer"


class Answer(msgspec.Struct, frozen=True):
    """What an order does to one worker, job or crew."""

    component: str
    text: str
    code: str = ""
    """One of `AnswerCode`. Empty in an answer from a node of version 0.1.0."""


def places_of(fleet: Fleet, scope: str | None) -> list[Place]:
    """Returns the places of a scope: all, a crew by its name, or a worker as worker:crew:index (or crew:index)."""
    if scope is None or scope == "*":
        return list(fleet.places.values())
    if scope in fleet.crews:
        return fleet.crew(scope)
    component = scope if scope.startswith("worker:") else f"worker:{scope}"
    if component in fleet.places:
        return [fleet.places[component]]
    known = ", ".join([*fleet.crews, *fleet.places])
    raise UnknownCrew(f"there is no crew or worker {scope!r}; there are: {known}")


def normal_scope(fleet: Fleet, scope: str | None) -> str:
    """Returns the scope in its stored form: `*`, a crew's name or a component id."""
    places = places_of(fleet, scope)
    if scope is None or scope == "*" or scope in fleet.crews:
        return scope or "*"
    return places[0].component


def carry_out(fleet: Fleet, verb: Verb, scope: str | None, now: float) -> tuple[list[Action], list[Answer]]:
    """Carries out an order on existing workers."""
    doing = {
        Verb.START: _start, Verb.STOP: _stop, Verb.DRAIN: _drain, Verb.RESTART: _restart, Verb.RESET: _reset,
    }[verb]  # fmt: skip
    actions: list[Action] = []
    answers: list[Answer] = []
    for place in places_of(fleet, scope):
        done, code, text = doing(fleet, place, now)
        actions += done
        answers.append(Answer(place.component, text, code))
    return [*actions, *fleet.admitted(now)], answers


Done = tuple[list[Action], AnswerCode, str]


def _start(fleet: Fleet, place: Place, now: float) -> Done:
    if place.status is Status.FAILED:
        return [], AnswerCode.GIVEN_UP, f"was given up ({place.text}); `chargehand reset {place.component}` starts it"
    if fleet.stopping:
        return [], AnswerCode.UNCHANGED, "is not started: the node is stopping"
    if place.after is After.REMOVE:
        return [], AnswerCode.REMOVED, "is being removed: its crew was scaled down"
    if place.status is Status.STOPPING or (place.why_leave is not None and place.alive):
        fleet.plan(place, After.START, Reason.RESTARTED)
        return [], AnswerCode.RESTARTS, "restarts when it has stopped"
    if place.alive:
        return [], AnswerCode.RUNS, "is already running"
    if place.status is Status.CRASHED:
        return (
            [],
            AnswerCode.WAITS,
            "restarts by itself" if not place.behind_breaker else "waits for the probe of its crew to run long enough",
        )
    fleet.start(place)
    return [], AnswerCode.STARTS, "starts"


def _stop(fleet: Fleet, place: Place, now: float) -> Done:
    was, job = place.status, place.doing
    actions = fleet.stop(place, After.STAY, Reason.STOPPED, now)
    if was is Status.FAILED:
        return actions, AnswerCode.GIVEN_UP, "was given up; nothing to stop"
    if not place.alive:
        return actions, AnswerCode.STOPPED, "is stopped"
    return (
        actions,
        AnswerCode.STOPS,
        f"stops; {job} may finish within the grace period, otherwise it is queued again" if job else "stops",
    )


def _drain(fleet: Fleet, place: Place, now: float) -> Done:
    was, job = place.status, place.doing
    actions = fleet.leave(place, After.STAY, Reason.DRAINED, now)
    if was is Status.FAILED:
        return actions, AnswerCode.GIVEN_UP, "was given up; nothing to drain"
    if not place.alive:
        return actions, AnswerCode.STOPPED, "is stopped"
    finishes = job is not None and place.verdict is None and place.status is not Status.STOPPING
    return actions, AnswerCode.STOPS, f"finishes {job}, then stops" if finishes else "stops"


def _restart(fleet: Fleet, place: Place, now: float) -> Done:
    fleet.renew(place)
    if place.alive:
        job = place.doing
        actions = fleet.stop(place, After.START, Reason.RESTARTED, now)
        return (
            actions,
            AnswerCode.RESTARTS,
            f"restarts; {job} may finish within the grace period" if job else "restarts",
        )
    actions = fleet.forgive(place) if place.status is Status.FAILED else []
    fleet.start(place)
    return actions, AnswerCode.STARTS, "starts"


def _reset(fleet: Fleet, place: Place, now: float) -> Done:
    actions = [*fleet.forgive(place), *fleet.close_breaker(place.crew, "an operator reset it")]
    if place.status is Status.STOPPING:
        return actions, AnswerCode.STOPS, "crash history cleared; is stopping"
    if place.alive:
        return actions, AnswerCode.RUNS, "crash history cleared; is already running"
    fleet.renew(place)
    fleet.start(place)
    return actions, AnswerCode.STARTS, "crash history cleared; starts"


def scale(fleet: Fleet, crew: str | None, count: int | None, now: float) -> tuple[list[Action], list[Answer]]:
    """Changes the number of workers of a crew."""
    if crew is None or crew not in fleet.crews:
        raise UnknownCrew(f"scale needs a crew; there is no crew {crew!r}; there are: {', '.join(fleet.crews)}")
    if count is None or not 0 <= count <= MOST_WORKERS:
        raise ConfigurationError(f"scale {crew!r} to {count}; must be 0 to {MOST_WORKERS}")
    actions: list[Action] = []
    answers: list[Answer] = []
    for place in fleet.crew(crew):
        if place.index >= count:
            actions += [Forgiven(place.component)] if place.status is Status.FAILED else []
            job = place.doing
            actions += fleet.leave(place, After.REMOVE, Reason.SCALED_DOWN, now)
            text = f"finishes {job}, then is removed" if job else "is removed"
            answers.append(Answer(place.component, text, AnswerCode.REMOVED))
    for index in range(count):
        place = fleet.places.get(f"worker:{crew}:{index}")
        if place is None:
            place = fleet.add(crew, index)
            fleet.start(place)
            answers.append(Answer(place.component, "starts", AnswerCode.STARTS))
        elif place.after is After.REMOVE:
            place.after, place.why_leave = After.START, Reason.RESTARTED
            answers.append(Answer(place.component, "was being removed; restarts", AnswerCode.RESTARTS))
    answers = answers or [Answer(place.component, "unchanged", AnswerCode.UNCHANGED) for place in fleet.crew(crew)]
    return [*actions, *fleet.admitted(now)], answers


def resumed(fleet: Fleet, scope: str | None) -> list[Answer]:
    """Returns the answers to a resume order; workers that were given up stay so."""
    answers: list[Answer] = []
    for place in places_of(fleet, scope):
        if place.status is Status.FAILED:
            code, text = (
                AnswerCode.GIVEN_UP,
                f"stays given up ({place.text}); `chargehand reset {place.component}` starts it",
            )
        elif place.paused:
            code, text = AnswerCode.PAUSED, f"is still paused by another pause: {_lifting(fleet.pauses_of(place))}"
        elif place.status is Status.STOPPING:
            code, text = AnswerCode.STOPS, "is stopping"
        elif place.alive:
            code, text = AnswerCode.RESUMED, "accepts jobs again"
        else:
            code, text = AnswerCode.RESUMED, f"is {place.status.value}" + (f" ({place.text})" if place.text else "")
        answers.append(Answer(place.component, text, code))
    return answers or [Answer(scope or "*", "is no longer paused; it has no workers", AnswerCode.RESUMED)]


def _lifting(scopes: list[str]) -> str:
    """Returns the commands that end these pauses."""
    who = ["" if scope == "*" else f" {scope.removeprefix('worker:')}" for scope in scopes]
    return " and ".join(f"`chargehand resume{each}`" for each in who)
