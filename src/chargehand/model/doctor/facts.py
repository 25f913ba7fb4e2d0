"""The facts that a diagnosis is made from: plain data, collected by `chargehand.doctor.examine`, judged by `diagnosis`.

Every one may be missing: what could not be learnt in time, or was refused, is None or empty, and never guessed. They
are read from JSON that another version may have written, so what is unknown is passed over.
"""

import shlex
from typing import Any

import msgspec


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What lies under the store."""

    filesystem: str = ""
    network: bool = False
    exists: bool | None = None
    kind: str = "file"
    """What the path is: file, folder, or something else."""
    free: int | None = None
    """Bytes that we may still write there."""
    size: int | None = None
    error: str | None = None
    """Why it could not be looked at."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process as the kernel shows it."""

    pid: int
    state: str = "?"
    age_s: float = 0.0
    user: str = ""
    command: str = ""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a worker's restart limits."""

    rapid_left: int = 1000
    lifetime_left: int = 1000


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as its node shows it."""

    component: str
    crew: str = ""
    status: str = ""
    flags: tuple[str, ...] = ()
    reason: str | None = None
    text: str | None = None
    pid: int | None = None
    current_job: str | None = None
    job_s: float | None = None
    ready_s: float | None = None
    started_s: float | None = None
    restart_in_s: float | None = None
    restart_count: int = 0
    budget: Left = Left()


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """The store as the node sees it."""

    failing: str | None = None
    waiting_s: float | None = None


class Unkillable(msgspec.Struct, frozen=True, kw_only=True):
    """A process of an earlier life that does not die."""

    component: str
    pid: int


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the node answers when it is asked."""

    node: str
    pid: int
    version: str = ""
    started_ms: int = 0
    stopping: str | None = None
    store: StoreView = StoreView()
    unkillable: tuple[Unkillable, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    breakers: dict[str, str] = {}
    blind: dict[str, str] = {}
    """Crews that cannot look for work, each with why."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever holds the lock that makes a node single, and what it says."""

    held: bool = False
    pid: int | None = None
    name: str = ""
    elsewhere: bool = False
    """It lives in another pid namespace: its pid means nothing here."""
    process: Process | None = None
    gone_file: bool = False
    """The file that it has open is no longer the one at this path."""
    silent: str | None = None
    """Why it did not answer."""
    listens: bool = False
    """It can be reached, though it does not answer."""
    refused: bool = False
    """We may not ask it: it belongs to somebody else."""
    view: View | None = None


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has held the write lock all the while that we looked."""

    seconds: float
    holder: Process | None = None


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The store's file as a database."""

    schema: int | None = None
    knows: int = 0
    """The schema that this code knows."""
    error: str | None = None


class PauseFact(msgspec.Struct, frozen=True, kw_only=True):
    """A pause flag."""

    scope: str
    who: str
    reason: str | None = None
    since_ms: int = 0
    left_ms: int | None = None


class CrewFact(msgspec.Struct, frozen=True, kw_only=True):
    """A crew as the store remembers it."""

    name: str
    queue: str
    workers: int = 0
    limit: int | None = None
    limit_per_key: int | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """That a worker was given up."""

    component: str
    crew: str
    reason: str
    at_ms: int = 0


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """The newest death of a crew's worker."""

    crew: str
    reason: str
    text: str = ""
    signal: int | None = None
    at_ms: int = 0
    where: str = ""
    """The package or file in which it stood, if it could tell."""


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a queue has; of the queued, `future` wait for their time and `limited` for a key's slot."""

    queue: str
    queued: int = 0
    future: int = 0
    limited: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0

    @property
    def due(self) -> int:
        return self.queued - self.future - self.limited


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """Another store that might be meant, and why: who names or serves it."""

    path: str
    why: str
    pid: int | None = None


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A process that an ended node's worker left."""

    pid: int
    component: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was learnt."""

    path: str = ""
    """The store that was looked at; empty if none was found."""
    looked_in: tuple[str, ...] = ()
    """Where a store was looked for."""
    plain: bool = False
    """Commands given here find this store without being told."""
    now_ms: int = 0
    version: str = ""
    patience: float = 0.0
    """Seconds that looking could take."""
    stuck: str | None = None
    """What we were looking at when that was over."""
    ground: Ground = Ground()
    node: NodeFacts = NodeFacts()
    lock: Lock | None = None
    book: Book = Book()
    pauses: tuple[PauseFact, ...] = ()
    crews: tuple[CrewFact, ...] = ()
    given_up: tuple[Mark, ...] = ()
    crashes: tuple[Crash, ...] = ()
    queues: tuple[QueueFacts, ...] = ()
    waiting: dict[str, int] = {}
    """For how many ms the next job of each queue that has a due one has waited."""
    last_done: dict[str, int] = {}
    next_run: dict[str, int] = {}
    """In how many ms the first of each queue's future jobs is due."""
    last_beat_ms: int | None = None
    """The newest beat that the node wrote down."""
    newest_ms: int | None = None
    """The newest time in the store."""
    others: tuple[Other, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    refused: dict[str, str] = {}
    """What could not be read of the store, each with why."""

    def command(self, words: str) -> str:
        """A command about this store that works where it is read."""
        return f"chargehand {words}" + ("" if self.plain else f" --store {shlex.quote(self.path)}")

    def queue_of(self, crew: str) -> str:
        """The queue that a crew serves."""
        return next((row.queue for row in self.crews if row.name == crew), crew)

    def count(self, queue: str) -> QueueFacts:
        """The numbers of one queue. One that is known only to have something waiting has one."""
        found = next((row for row in self.queues if row.queue == queue), None)
        return found or QueueFacts(queue=queue, queued=int(queue in self.waiting))

    def waits_for(self, crew: str) -> int:
        """How many jobs could be done now, if that crew did them."""
        queue = self.queue_of(crew)
        return max(self.count(queue).due, int(queue in self.waiting))

    @property
    def waits(self) -> int:
        """How many jobs could be done now, if somebody did them."""
        names = {row.queue for row in self.queues} | set(self.waiting)
        return sum(max(self.count(name).due, int(name in self.waiting)) for name in names)

    @property
    def done_ms(self) -> int | None:
        """When a job was done last."""
        return max(self.last_done.values(), default=None)


def facts_of(parts: dict[str, Any]) -> Facts:
    """Facts from what was collected; a part that is not as expected is left out, and said so."""
    kept: dict[str, Any] = {}
    refused: dict[str, str] = dict(parts.get("refused", {}))
    types = {field.name: field.type for field in msgspec.structs.fields(Facts)}
    for name, value in parts.items():
        if name not in types or name == "refused":
            continue
        try:
            kept[name] = msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            refused[name] = str(error)
    return Facts(**kept, refused=refused)
