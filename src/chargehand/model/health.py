"""The health of a component as it is shown, and the verdict on the whole system. Pure: every reader uses it."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from chargehand.errors import summary
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.place import Place, Shortage

APP = "app"
"""The component id of the node itself."""
FRESH_MS = 30_000
"""The maximum age of a heartbeat for a component to be shown as healthy."""


class Verdict(StrEnum):
    """The health of the whole system."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    ERROR = "error"


class Findings(msgspec.Struct, frozen=True):
    """The verdict and its reasons, most severe first."""

    status: Verdict
    reasons: tuple[str, ...] = ()


def shown_status(status: str, flags: Sequence[str], age_ms: int | None, fresh_ms: int = FRESH_MS) -> str:
    """Returns the status to show: not `healthy` for a component with flags or an old heartbeat."""
    if status != Status.HEALTHY:
        return status
    if flags:
        return f"{status} ({', '.join(flags)})"
    if age_ms is None or not 0 <= age_ms <= fresh_ms:
        return "unknown"
    return status


def is_healthy(status: str, flags: Sequence[str], age_ms: int | None, max_age_ms: int = FRESH_MS) -> bool:
    """Whether the component is known to be healthy."""
    return status in (Status.HEALTHY, Status.PAUSED) and not flags and age_ms is not None and 0 <= age_ms <= max_age_ms


class JudgedWorker(Protocol):
    """The attributes of a worker that the verdict depends on."""

    @property
    def component(self) -> str: ...
    @property
    def crew(self) -> str | None: ...
    @property
    def status(self) -> str: ...
    @property
    def flags(self) -> Sequence[str]: ...
    @property
    def text(self) -> str | None: ...
    @property
    def cause(self) -> str | None: ...


def judge(
    workers: Sequence[JudgedWorker],
    unserved: Mapping[str, str],
    *,
    node: bool = True,
    store_failing: str | None = None,
    blind: Mapping[str, str] | None = None,
    gone: Sequence[str] = (),
) -> Findings:
    """Returns the verdict on a system, from what is shown of its workers.

    `unserved` maps queues to the reason why no worker takes their jobs; `blind` maps crews to the error of their
    `discover`; `gone` are the nodes that have disappeared.
    """
    errors: list[str] = [] if node else ["no node runs: no jobs are performed"]
    if store_failing:
        errors.append(f"the store fails: {store_failing}")
    errors += [f"queue {queue} has waiting jobs that no worker takes: {why}" for queue, why in sorted(unserved.items())]
    warnings = [f"crew {crew}: discover fails: {summary(why)}" for crew, why in sorted((blind or {}).items())]
    warnings += [f"node {node} is gone: its jobs go to other nodes" for node in gone]
    crews: dict[str, list[JudgedWorker]] = {}
    for worker in workers:
        crews.setdefault(str(worker.crew), []).append(worker)
    for crew, members in crews.items():
        failed = [member for member in members if member.status == Status.FAILED]
        if failed:
            text = f"crew {crew}: {len(failed)} of {len(members)} given up: {_why(failed[0])}"
            (errors if len(failed) == len(members) else warnings).append(text)
        for member in members:
            if member.flags:
                warnings.append(f"{member.component} is {', '.join(member.flags)}")
            elif member.status == Status.CRASHED:
                warnings.append(f"{member.component} crashed: {_why(member)}")
    status = Verdict.ERROR if errors else Verdict.DEGRADED if warnings else Verdict.HEALTHY
    return Findings(status, (*errors, *warnings))


def _why(worker: JudgedWorker) -> str:
    return worker.cause or summary(worker.text)


class Member(msgspec.Struct, frozen=True):
    """One worker of a crew; `will_work` if it accepts jobs, or will without intervention."""

    crew: str
    status: str
    text: str | None
    will_work: bool


def unserved(
    waiting: Sequence[tuple[str, int]], queues: Mapping[str, str], members: Sequence[Member], paused: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the queues with due jobs that no worker will take, with the reasons. `queues` maps crews to queues."""
    found: dict[str, str] = {}
    for queue, _ in waiting:
        crews = [crew for crew, served in queues.items() if served == queue]
        if not crews:
            found[queue] = "no crew serves it"
            continue
        if "*" in paused or all(crew in paused for crew in crews):
            continue  # paused on purpose, and shown as paused
        concerned = [member for member in members if member.crew in crews]
        if not concerned:
            found[queue] = f"its crew {', '.join(crews)} has no workers: chargehand scale {crews[0]} 1"
        elif not any(member.will_work for member in concerned):
            first = concerned[0]
            why = f" ({summary(first.text)})" if first.text and first.text != first.status else ""
            state = "given up" if first.status == Status.FAILED else first.status
            verb = "reset" if any(member.status == Status.FAILED for member in concerned) else "start"
            found[queue] = f"all workers of {', '.join(crews)} are {state}{why}: chargehand {verb} {crews[0]}"
    return found


def paused_on_purpose(queue: str, queues: Mapping[str, str], paused: Sequence[str]) -> str | None:
    """Returns how the pause of all crews of a queue is ended; None: not all are paused. `queues` as in `unserved`."""
    crews = [crew for crew, served in queues.items() if served == queue]
    if "*" in paused:
        return "it is paused: chargehand resume"
    if crews and all(crew in paused for crew in crews):
        return f"it is paused: {'; '.join(f'chargehand resume {crew}' for crew in crews)}"
    return None


def held_up(queue: str, queues: Mapping[str, str], members: Sequence[Member]) -> str | None:
    """Returns why no worker takes a due job of the queue at present, while a node runs; None: nothing is known."""
    never = unserved([(queue, 0)], queues, members).get(queue)
    if never is not None:
        return never
    crews = [crew for crew, served in queues.items() if served == queue]
    concerned = [member for member in members if member.crew in crews]
    if all(member.status == Status.CRASHED for member in concerned):
        why = f" ({summary(concerned[0].text)})" if concerned[0].text else ""
        return f"all workers of {', '.join(crews)} crashed and wait to be restarted{why}"
    return None


def will_work(place: Place) -> bool:
    """Whether the worker accepts jobs, or will without intervention."""
    if place.in_line and not place.alive:
        return place.shortage is not Shortage.PERMANENT
    if place.status in (Status.HEALTHY, Status.PAUSED, Status.ASLEEP, Status.STARTING, Status.CRASHED):
        return True
    return place.status is Status.STOPPED and place.start_at is not None


def member_of(place: Place) -> Member:
    """Returns the place as a member of its crew."""
    return Member(place.crew, place.status.value, place.cause.line if place.cause else place.text, will_work(place))
