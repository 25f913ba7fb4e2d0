"""The facts for a diagnosis: plain data, collected by `chargehand.doctor.examine` and judged by `diagnosis`.

Every fact may be missing: what could not be read in time, or was refused, is None or empty, and never guessed. Facts
are decoded from JSON that another version may have written; unknown fields are ignored.
"""

import shlex
from typing import Any

import msgspec

from chargehand.model.doctor.server_facts import ServerFacts
from chargehand.model.job import State
from chargehand.model.status import NodeStatus


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The file of the store and its file system."""

    filesystem: str = ""
    network: bool = False
    exists: bool | None = None
    kind: str = "file"
    """The type of the path: file, folder, or another type."""
    free: int | None = None
    """Free disk space in bytes."""
    size: int | None = None
    expected: int | None = None
    """The size in bytes that the header of the file states."""
    header_damaged: bool = False
    log_damaged: bool = False
    """Whether the write-ahead log has no valid header."""
    error: str | None = None
    """Why the path could not be examined, or is refused."""
    shared: bool = False
    """Whether the group of the folder may write to it."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, from /proc."""

    pid: int
    state: str = "?"
    age_s: float = 0.0
    user: str = ""
    command: str = ""


class NodeRestart(msgspec.Struct, frozen=True, kw_only=True):
    """A living host whose node has exited, and that will start another."""

    host: int
    deaths: int
    window: float
    last: str
    at_ms: int


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The process that holds the node's lock, and its answer."""

    held: bool = False
    pid: int | None = None
    name: str = ""
    elsewhere: bool = False
    """Whether it runs in another pid namespace, so that its pid means nothing here."""
    process: Process | None = None
    gone_file: bool = False
    """Whether a file it has open is no longer the one at its path."""
    gone_name: str = ""
    """The name of the deleted file; empty if it is the store."""
    silent: str | None = None
    """Why it did not answer."""
    listens: bool = False
    """Whether a connection is possible although it does not answer."""
    refused: bool = False
    """Whether the connection was refused because it belongs to another user."""
    no_socket: bool = False
    """Whether its control socket does not exist."""
    view: NodeStatus | None = None
    restarts: NodeRestart | None = None
    """The host that will start a node, while none runs."""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The write lock was held during the whole examination."""

    seconds: float
    holder: Process | None = None
    engine: bool = False
    """Whether it is SQLite's own lock, which other programs take, too."""


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The store's schema, or why it could not be read."""

    schema: int | None = None
    knows: int = 0
    """The schema version of this code."""
    oldest: int | None = None
    """The oldest schema version whose code may use the store; None: the version of the store itself."""
    error: str | None = None
    damaged: bool = False
    """Whether the error says that the file is damaged."""


class PauseFact(msgspec.Struct, frozen=True, kw_only=True):
    """A pause."""

    scope: str
    who: str
    reason: str | None = None
    since_ms: int = 0
    left_ms: int | None = None


class CrewFact(msgspec.Struct, frozen=True, kw_only=True):
    """A crew, from the store."""

    name: str
    queue: str
    workers: int = 0
    limit: int | None = None
    limit_per_key: int | None = None
    rate: str | None = None
    rate_per_key: str | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was given up."""

    component: str
    crew: str
    reason: str
    at_ms: int = 0
    node: str = ""
    """Its node; empty in a store for one node."""


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """The latest crash of a crew's worker."""

    crew: str
    reason: str
    text: str = ""
    signal: int | None = None
    at_ms: int = 0
    where: str = ""
    """The package or file in which it crashed, if known."""


class PoisonFact(msgspec.Struct, frozen=True, kw_only=True):
    """A job that crashed several workers."""

    id: str
    queue: str
    crashes: int
    state: State
    label: str | None = None


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was replaced because its process was broken, or failed jobs that others can do."""

    node: str = ""
    component: str
    crew: str
    reason: str
    text: str
    at_ms: int
    failed_since: int = 0
    """How many jobs of its queue have failed for good since."""
    error: str | None = None
    """The error of the last one of them, in one line."""


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of jobs of a queue; `future`, `following` and `limited` are queued jobs that are scheduled for later,
    wait for other jobs, or are held by a limit or a rate of their key."""

    queue: str
    queued: int = 0
    future: int = 0
    following: int = 0
    limited: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    rate_next_ms: int | None = None
    """When a rate admits the next job; None if no job waits for a rate."""

    @property
    def due(self) -> int:
        return self.queued - self.future - self.following - self.limited


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A job that others wait for, and that itself waits for no job."""

    id: str
    queue: str
    label: str | None = None
    state: State
    reason: str | None = None
    run_at_ms: int = 0
    started_ms: int | None = None


class WaitingFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that has not ended, and of which no job runs."""

    id: str
    name: str
    waiting: int = 0
    awaited: Awaited
    """The job that the flow waits for: one of its own, or another one."""


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """Another store that may be the intended one, and why: who refers to it or serves it."""

    path: str
    why: str
    pid: int | None = None


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was left by a worker of a dead node."""

    pid: int
    component: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts."""

    path: str = ""
    """The store that was examined; empty if none was found."""
    looked_in: tuple[str, ...] = ()
    """Where a store was searched for."""
    plain: bool = False
    """Whether commands find this store without an option."""
    now_ms: int = 0
    version: str = ""
    patience: float = 0.0
    """The time limit of the examination in seconds."""
    stuck: str | None = None
    """What was being examined when the time limit was reached."""
    ground: Ground = Ground()
    server: ServerFacts | None = None
    """The server of the store; None for an SQLite store."""
    node: NodeFacts = NodeFacts()
    lock: Lock | None = None
    book: Book = Book()
    pauses: tuple[PauseFact, ...] = ()
    crews: tuple[CrewFact, ...] = ()
    given_up: tuple[Mark, ...] = ()
    crashes: tuple[Crash, ...] = ()
    poison: tuple[PoisonFact, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    queues: tuple[QueueFacts, ...] = ()
    waiting: dict[str, int] = {}
    """For each queue with a due job, for how many ms the oldest one has waited."""
    unserved: dict[str, str] = {}
    """The queues with due jobs that no worker of a node that lives will take, each with the reason, from the store."""
    awaited: dict[str, Awaited] = {}
    """For each queue of which all queued jobs wait for others, the job that one of them waits for."""
    waiting_flows: tuple[WaitingFlow, ...] = ()
    last_done: dict[str, int] = {}
    next_run: dict[str, int] = {}
    """For each queue with scheduled jobs, in how many ms the first one is due."""
    last_beat_ms: int | None = None
    """The latest heartbeat of the node in the store."""
    newest_ms: int | None = None
    """The latest time in the store."""
    others: tuple[Other, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    refused: dict[str, str] = {}
    """What could not be read from the store, each with the error."""

    def command(self, words: str) -> str:
        """Returns a command line for this store."""
        return f"chargehand {words}" + ("" if self.plain else f" --store {shlex.quote(self.path)}")

    def queue_of(self, crew: str) -> str:
        """Returns the queue that a crew serves."""
        return next((row.queue for row in self.crews if row.name == crew), crew)

    def count(self, queue: str) -> QueueFacts:
        """Returns the numbers of a queue; if only a waiting job is known, one."""
        found = next((row for row in self.queues if row.queue == queue), None)
        return found or QueueFacts(queue=queue, queued=int(queue in self.waiting))

    def waits_for(self, crew: str) -> int:
        """Returns how many jobs are due for this crew."""
        queue = self.queue_of(crew)
        return max(self.count(queue).due, int(queue in self.waiting))

    @property
    def unusable(self) -> bool:
        """Whether the file or the server cannot be used as a store."""
        if self.server is not None:
            return self.server.error is not None
        return bool(self.ground.error or self.book.error or self.ground.kind != "file" or self.ground.size == 0)

    @property
    def waits(self) -> int:
        """How many jobs are due in all queues."""
        names = {row.queue for row in self.queues} | set(self.waiting)
        return sum(max(self.count(name).due, int(name in self.waiting)) for name in names)

    @property
    def done_ms(self) -> int | None:
        """When the last job was done."""
        return max(self.last_done.values(), default=None)


def facts_of(parts: dict[str, Any]) -> Facts:
    """Converts collected parts to Facts; an invalid part is omitted and listed in `refused`."""
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
