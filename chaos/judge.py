"""Compares the ledgers of the enqueuer and the handlers with the store, after all processes have exited."""

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from chaos import ledger
from chaos.handlers import AsTold
from chargehand.errors import Cancelled, ClaimLost, StoreBusy, StoreError
from chargehand.log import Event


@dataclass
class Verdict:
    """The counts, and a description of every violation."""

    executed: int = 0
    acknowledged: int = 0
    unsure: int = 0
    """Interrupted calls: their jobs may exist or not."""
    unsure_there: int = 0
    completed: int = 0
    late: int = 0
    """Outcomes rejected by the fencing token."""
    lost: list[str] = field(default_factory=list[str])
    twice: list[str] = field(default_factory=list[str])
    unexpected: list[str] = field(default_factory=list[str])
    orphans: list[str] = field(default_factory=list[str])
    expired: list[str] = field(default_factory=list[str])
    """Outcomes that were accepted although their claims had been taken back."""
    overlaps: int = 0
    """Executions of a job while another node, cut off from the store, ran it too."""
    struck: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.unexpected or self.orphans or self.expired)


@dataclass
class Excuses:
    """What a run explains that would be a violation in others."""

    outages: bool = False
    """The store could not be reached at times: calls failed, nodes logged errors, and jobs ran on two nodes at once."""
    gone: set[str] = field(default_factory=set[str])
    """Acknowledged jobs that a failover of the server has lost."""
    failover: bool = False
    """A failover of the server has lost the last records of all jobs."""


NO_EXCUSE = Excuses()
OF_THE_STORE = {error.__name__ for error in (StoreError, StoreBusy, ClaimLost, Cancelled)}


class Asked:
    """The parsed ledger of the enqueuer."""

    def __init__(self, path: Path) -> None:
        self.tried: dict[str, str] = {}
        self.answered: dict[str, str] = {}
        self.void: set[str] = set()
        self.failed: list[str] = []
        for line in ledger.read(path):
            match line:
                case ["try", job, how]:
                    self.tried[job] = how
                case ["ack", job, got] if len(got) == len(job):
                    self.answered[job] = got
                case ["void", job]:
                    self.void.add(job)
                case ["fail", job, *why]:
                    self.failed.append(f"enqueueing {job} failed: {' '.join(why)}")
                case _:
                    continue  # a partial line, cut by a kill

    @property
    def unsure(self) -> set[str]:
        """Returns the ids whose calls were never answered."""
        return set(self.tried) - set(self.answered) - self.void


@dataclass
class Told:
    """The parsed file of a job."""

    starts: int = 0
    ends: set[int] = field(default_factory=set[int])
    followers: list[str] = field(default_factory=list[str])
    overlaps: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    """Executions that ended because the store could not be reached, or had given the job to others."""
    wrong: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, path: Path) -> "Told":
        told = cls()
        for kind, *words in ledger.read(path):
            match kind:
                case "start":
                    told.starts += 1
                case "end":
                    told.ends.add(int(words[0]))
                case "follow":
                    told.followers.append(words[0])
                case "overlap":
                    told.overlaps.append(f"{path.name}: overlap {' '.join(words)}")
                case "at":
                    continue
                case "raise" if words[1] in OF_THE_STORE:
                    told.failed.append(f"{path.name}: {kind} {' '.join(words)}")
                case "raise" if words[1] == AsTold.__name__:
                    continue
                case _:
                    told.wrong.append(f"{path.name}: {kind} {' '.join(words)}")
        return told


@dataclass(frozen=True)
class Questions:
    """How to ask a store for its content."""

    jobs: str
    """The id, state, reason and payload of every job."""
    attempts: str
    """The id of the job, the pid and the outcome of every attempt."""
    expired: str | None = None
    """Jobs that ended under a claim that had been taken back; None if the store does not keep that."""


IN_FILE = Questions(
    jobs="SELECT id, state, reason, payload FROM chargehand_job",
    attempts="SELECT j.id, a.pid, a.outcome FROM chargehand_attempt a JOIN chargehand_job j ON j.seq = a.job",
)


class Kept:
    """The content of a store."""

    def __init__(self, ask: Callable[[str], list[tuple[Any, ...]]], questions: Questions) -> None:
        self.integrity = "ok"
        self.state: dict[str, str] = {}
        self.reason: dict[str, str | None] = {}
        self.payload: dict[str, dict[str, Any]] = {}
        self.attempts: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
        for job, state, reason, payload in ask(questions.jobs):
            self.state[job], self.reason[job], self.payload[job] = state, reason, json.loads(payload)
        for job, pid, outcome in ask(questions.attempts):
            self.attempts[job].append((pid, outcome))
        self.rows = Counter(str(row[0]) for row in ask("SELECT job FROM chaos_row"))
        self.deals = Counter(str(row[0]) for row in ask("SELECT job FROM chaos_deal"))
        self.followers = Counter(str(p["parent"]) for p in self.payload.values() if "parent" in p)
        self.expired = [" ".join(map(str, row)) for row in ask(questions.expired)] if questions.expired else []

    def done(self, job: str) -> list[int | None]:
        """Returns the pids whose completion of the job was accepted."""
        return [pid for pid, outcome in self.attempts[job] if outcome == "done"]


def in_file(path: Path) -> Kept:
    """Returns the content of a file, read with the engine that wrote it."""
    db: Any = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    kept = Kept(lambda sql: db.execute(sql).fetchall(), IN_FILE)
    kept.integrity = "; ".join(str(row[0]) for row in db.execute("PRAGMA integrity_check"))
    db.close()
    return kept


def judge(folder: Path, kept: Kept, excuses: Excuses = NO_EXCUSE) -> Verdict:
    """Evaluates everything once all processes have exited."""
    asked = Asked(folder / "ledger")
    told = {path.name: Told.of(path) for path in (folder / "jobs").iterdir()}
    logs = [fields_of(line) for path in sorted((folder / "logs").iterdir()) for line in _lines(path)]
    verdict = Verdict(
        executed=sum(one.starts for one in told.values()),
        acknowledged=len(set(asked.answered.values())),
        unsure=len(asked.unsure),
        unsure_there=len(asked.unsure & set(kept.state)),
        completed=sum(state == "done" for state in kept.state.values()),
        late=sum(line.get("event") == Event.OUTCOME_LATE for line in logs),
    )
    verdict.lost = [
        f"{job} was acknowledged and is {kept.state.get(job, 'not there')} ({kept.reason.get(job)})"
        for job in sorted(set(asked.answered.values()))
        if kept.state.get(job) != "done" and job not in excuses.gone
    ]
    verdict.twice = list(_twice(kept))
    overlaps = [line for one in told.values() for line in one.overlaps]
    verdict.overlaps = len(overlaps)
    verdict.expired = kept.expired
    verdict.unexpected = [
        *([] if excuses.outages else asked.failed),
        *_strangers(asked, kept, told),
        *(line for job in kept.state for line in _wrong_with(job, kept, told.get(job, Told()), excuses)),
        *(line for one in told.values() for line in one.wrong),
        *([] if excuses.outages else overlaps),
        *(line for one in told.values() for line in one.failed if not excuses.outages),
        *_deals(asked, kept),
        *in_the_logs(logs, outages=excuses.outages),
    ]
    if kept.integrity != "ok":
        verdict.unexpected.append(f"integrity_check: {kept.integrity}")
    return verdict


def _twice(kept: Kept) -> Iterator[str]:
    """Returns completions by any record: attempts, rows committed with the completion, follow-up jobs."""
    for job in kept.state:
        for what, count in (("done", len(kept.done(job))), ("row", kept.rows[job]), ("follower", kept.followers[job])):
            if count > 1:
                yield f"{job}: {what} {count} times"


def _strangers(asked: Asked, kept: Kept, told: dict[str, Told]) -> Iterator[str]:
    """Reports jobs in the store that were not enqueued, or whose enqueuer was told that they do not exist."""
    followers = {job for one in told.values() for job in one.followers}
    for job, state in kept.state.items():
        if job not in asked.tried and job not in followers:
            yield f"{job} is {state}, and nobody enqueued it"
        if job in asked.void:
            yield f"{job} is {state}, and its transaction was rolled back"
        if asked.answered.get(job, job) != job and job not in asked.answered.values():
            yield f"{job} is {state}, and its enqueuer was told that it is {asked.answered[job]}"
        if state != "done" and job not in asked.answered.values():
            yield f"{job} was not acknowledged, is there, and is {state} ({kept.reason[job]})"


def _wrong_with(job: str, kept: Kept, told: Told, excuses: Excuses) -> Iterator[str]:
    """Reports contradictions in the records of one job."""
    payload, done = kept.payload[job], kept.done(job)
    if told.starts > len(kept.attempts[job]) and not excuses.failover:
        yield f"{job}: {told.starts} executions, {len(kept.attempts[job])} attempts in the store"
    if kept.state[job] != "done":
        if done or kept.rows[job] or kept.followers[job]:
            yield f"{job} is {kept.state[job]}, and was done before"
        return
    if not done:
        yield f"{job} is done, and no attempt says so"
    if payload["do"] != "churn" and any(pid not in told.ends for pid in done):
        yield f"{job} was done by {done}, and only {sorted(told.ends)} came to its end"
    if payload["do"] == "settle" and not kept.rows[job]:
        yield f"{job} is done without the row that was to be committed with it"
    if payload["do"] == "follow" and not kept.followers[job]:
        yield f"{job} is done without the job that was to follow it"


def _deals(asked: Asked, kept: Kept) -> Iterator[str]:
    """Checks that a row and a job of one transaction both exist or neither does."""
    for job in kept.deals:
        if job not in kept.state:
            yield f"the row of {job} is there without the job"
    for job in kept.state:
        if asked.tried.get(job) == "deal" and kept.deals[job] != 1:
            yield f"{job} is there, and its row {kept.deals[job]} times"


def ends_of(folder: Path) -> Iterator[float]:
    """Returns the monotonic times at which handlers came to the end of a job."""
    for path in (folder / "jobs").iterdir():
        for kind, *words in ledger.read(path):
            if kind == "end":
                yield float(words[1])


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def fields_of(line: str) -> dict[str, Any]:
    """Returns the fields of a log line; text that is not a log line of Chargehand becomes the field `stray`."""
    try:
        fields = json.loads(line)
    except ValueError:
        return {"stray": line}
    return fields if isinstance(fields, dict) else {"stray": line}  # pyright: ignore[reportUnknownVariableType]


def in_the_logs(logs: list[dict[str, Any]], *, outages: bool = False) -> Iterator[str]:
    """Reports log lines that no kill explains: stray text, exceptions, errors, unexpected exits of nodes."""
    for line in logs:
        match line:
            case {"level": "error", "event": Event.JOB_FAILED, "reason": "poison"}:
                continue
            case {"level": "error", **rest} if outages and "exception" not in rest:
                continue
            case {"event": Event.NODE_EXITED, "signal": signal.SIGKILL}:
                continue
            case {"stray": _} | {"exception": _} | {"level": "error"} | {"event": Event.NODE_EXITED}:
                yield f"log: {json.dumps(line)}"
            case _:
                continue
