"""The promises of several nodes on one store, checked against what really happened in the simulated world.

It sees every commit as the difference of two states, and every worker as it is, and asks no shipped code.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from clockwork import Broken
from cluster_store import NodeRow, Row, Tables

from chargehand.model.job import Claim, Done, Outcome, Settlement, State

if TYPE_CHECKING:
    from cluster import World
    from cluster_node import Node, Worker

Key = tuple[int, int]
"""A claim: the seq of the job, and the number."""
FINISHED = (State.DONE, State.FAILED, State.CANCELLED)
EPS = 1e-6
Pace = tuple[int, int]
"""A rate: so many starts, within so many ms."""
UNITS = {"s": 1000, "min": 60_000, "h": 3_600_000, "day": 86_400_000}


class Running(msgspec.Struct, frozen=True):
    """A job in the hands of a worker process."""

    key: Key
    node: str
    worker: str


class Oracle:
    """Raises Broken when a promise is broken."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._issued: dict[Key, tuple[str, int]] = {}
        """Every claim that was ever committed: the id of the job, and the version of the store."""
        self._forgotten: set[Key] = set()
        """Claims that a failover forgot."""
        self.lost: set[str] = set()
        """Jobs that a failover forgot."""
        self._running: dict[str, list[Running]] = {}
        self._performed: dict[Key, str] = {}
        """Claims under which a worker has done the job, and the id of that job."""
        self._beat_at: dict[str, float] = {}
        self._recalled: set[Key] = set()
        """Claims whose jobs a node has cancelled: their workers may be killed."""
        self._gone: set[str] = set()
        """Lives that were removed: by their own node, or because they were silent for long enough."""
        self._allowed: dict[str, tuple[int | None, int | None]] = {}
        self._rates: dict[str, tuple[set[Pace], set[Pace]]] = {}
        """The rates of each queue, and of each key in it."""
        self._starts: dict[Key, tuple[int, str, str | None]] = {}
        """The time in ms, the queue and the key of each claim; without those that were given back and never begun."""
        self._begun: set[Key] = set()

    def check(self, kept: bool, promise: str) -> None:
        if not kept:
            raise Broken(promise)

    # what workers do

    def handed(self, node: "Node", worker: "Worker", claim: Claim) -> None:
        """A worker begins a job."""
        key = (claim.seq, claim.number)
        self._world.note(f"{node.name} {worker.component} begins {claim.id}")
        self.check(worker.claim is None, f"{worker.component} gets a second job")
        self.check(self._issued.get(key, ("", 0))[0] == claim.id, f"{claim.id} is run without a claim")
        there = self._running.setdefault(claim.id, [])
        if node.crews[claim.queue].stops:
            others = [each for each in there if each.key not in self._forgotten]
            overlap = others if key not in self._forgotten else []
            self.check(not overlap, f"{claim.id} must not run in two places at once: {node.name}, and {overlap}")
        there.append(Running(key, node.name, worker.component))
        self._begun.add(key)

    def ended(self, worker: "Worker", claim: Claim, outcome: Outcome | None) -> None:
        """A worker ends a job, or is ended with it."""
        key = (claim.seq, claim.number)
        self._world.note(f"{worker.node.name} {worker.component} ends {claim.id}: {type(outcome).__name__}")
        there = self._running[claim.id]
        self._running[claim.id] = [each for each in there if each.key != key]
        if isinstance(outcome, Done):
            self._performed[key] = claim.id

    def cancelled(self, node: "Node", worker: "Worker", job: str) -> None:
        """A node cancels a job; nobody has asked for that in these histories."""
        world = self._world
        world.tally["job cancelled by its node"] += 1
        if worker.claim is not None:
            self._recalled.add((worker.claim.seq, worker.claim.number))
        self._goes_on(node, worker, f"{node.name} cancels {job}")
        away = max(world.troubled_at.get(node.name, -1e9), world.server.up_since)
        near = (
            not world.server.up or world.now - away <= world.liveness.lease + 10
        )  # until it notices, and has connected
        self.check(near, f"{node.name} cancels {job}, though it reaches the store")

    def killed(self, node: "Node", worker: "Worker") -> None:
        """A node kills a worker."""
        if worker.claim is not None and (worker.claim.seq, worker.claim.number) not in self._recalled:
            self._goes_on(node, worker, f"{node.name} kills {worker.component}")

    def _goes_on(self, node: "Node", worker: "Worker", what: str) -> None:
        claim, world = worker.claim, self._world
        if claim is None or node.crews[claim.queue].stops or not node.client.up_to_date:
            return
        row = world.server.tables.jobs.get(claim.seq)
        held = row is not None and row.claim == claim.number
        self.check(not held, f"{what}, though its crew goes on when it is cut off, and its claim holds")

    def refused(self, node: "Node", settlements: Sequence[Settlement]) -> None:
        """A node learns that outcomes were refused."""
        ends = self._world.server.tables.ends
        for each in settlements:
            accepted = each.outcome == "done" and ends.get((each.seq, each.claim)) == "done"
            late = not node.client.up_to_date
            self.check(late or not accepted, f"{node.name} takes the outcome of {each.id} for refused, but it counts")

    # what the store does

    def committed(self, before: Tables, after: Tables) -> None:
        """A transaction has committed."""
        claimed: set[str] = set()
        for seq, row in after.jobs.items():
            old = before.jobs.get(seq)
            if old is row:
                continue
            if old is not None:
                self.check(old.state not in FINISHED, f"{row.new.id} has ended, and changes")
                if old.claim is not None and row.claim != old.claim:
                    self._released(old, row, before, after)
            if row.claim is not None and (old is None or old.claim != row.claim):
                ended = old is None or old.claim is None or (seq, old.claim) in after.ends  # in the same transaction
                self.check(ended, f"{row.new.id} is claimed while it is claimed")
                key = (seq, row.claim)
                self.check(key not in self._issued, f"{row.new.id}: a number is given to a second claim")
                self._issued[key] = (row.new.id, after.version)
                self._starts[key] = (int(self._world.now * 1000), row.new.queue, row.new.limit_key)
                self.check(row.life in after.nodes, f"{row.new.id} is claimed by {row.life}, which is not registered")
                claimed.add(row.new.queue)
        self._nodes(before, after)
        for queue in claimed:
            self._limits(queue, after)
            self._paced(queue)

    def _released(self, old: Row, row: Row, before: Tables, after: Tables) -> None:
        """A claim has ended."""
        assert old.claim is not None
        key, job = (old.seq, old.claim), row.new.id
        self.check(key not in before.ends, f"{job}: a claim has ended twice")
        if after.ends.get(key) is None and key not in self._begun:
            self._starts.pop(key, None)
        if key not in after.ends:
            there = [each for each in self._running.get(job, []) if each.key == key]
            self.check(not there, f"{job} is given back, though a worker has it: {there}")
        elif row.state is State.DONE:
            self.check(self._performed.get(key) == job, f"{job} is done, but nobody has done it under its claim")

    def _nodes(self, before: Tables, after: Tables) -> None:
        now, world = self._world.now, self._world
        for life, row in after.nodes.items():
            old = before.nodes.get(life)
            if old is None or old.beat != row.beat:
                self._beat_at[life] = now
            if old is None:
                self._declared(after)
        for life, row in before.nodes.items():
            if life in after.nodes or life in self._gone:
                continue  # a failover may restore a life that has ended
            self._gone.add(life)
            own = [new for new in after.nodes.values() if new.name == row.name]
            if not own:
                self._expired(row)
            elif row.about.boot != own[0].about.boot or (
                row.about.pid != own[0].about.pid and world.is_alive(row.about.pid or 0, 0)
            ):
                self._expired(row)  # another process takes the name of one that may live

    def _expired(self, row: NodeRow) -> None:
        """Others have taken a node for dead."""
        world = self._world
        ended = row.session not in world.server.sessions and not row.about.stops
        lease = row.about.lease / 3 if ended else row.about.lease
        silent = world.now - max(self._beat_at[row.life], world.server.up_since)
        self.check(silent >= lease - EPS, f"{row.name} is expired after {silent:.3f} s of {lease} s without a beat")
        noticed = world.noticed[1]  # a node waits so long for an answer that does not come
        near = world.now - world.troubled_at.get(row.name, -1e9) <= 2 * row.about.lease + noticed
        near |= not world.is_alive(row.about.pid or 0, 0)
        self.check(near, f"{row.name} is expired, though nothing but the server was away")

    def _declared(self, tables: Tables) -> None:
        """A node has registered: the limits are those of all nodes that live."""
        self._allowed, self._rates = {}, {}
        for node in tables.nodes.values():
            for crew in tables.crews[node.name]:
                most, per_key = self._allowed.get(crew.queue, (None, None))
                self._allowed[crew.queue] = (_least(most, crew.limit), _least(per_key, crew.limit_per_key))
                of_queue, of_keys = self._rates.setdefault(crew.queue, (set(), set()))
                of_queue |= _paces(crew.rate)
                of_keys |= _paces(crew.rate_per_key)

    def _limits(self, queue: str, tables: Tables) -> None:
        most, per_key = self._allowed.get(queue, (None, None))
        running = [row for row in tables.jobs.values() if row.new.queue == queue and row.claim is not None]
        self.check(most is None or len(running) <= most, f"{len(running)} jobs of {queue} run, of {most}")
        keys = Counter(row.new.limit_key for row in running if row.new.limit_key is not None)
        self.check(per_key is None or max(keys.values(), default=0) <= per_key, f"{keys} of {queue} run, of {per_key}")

    def _paced(self, queue: str) -> None:
        """Jobs were claimed: no period that ends now has more starts than a rate allows."""
        of_queue, of_keys = self._rates.get(queue, (set[Pace](), set[Pace]()))
        now = int(self._world.now * 1000)
        recent = [(at, key) for at, of, key in self._starts.values() if of == queue]
        for most, period in of_queue:
            started = sum(at > now - period for at, _ in recent)
            self.check(started <= most, f"{started} jobs of {queue} were started within {period} ms, of {most}")
        for most, period in of_keys:
            keys = Counter(key for at, key in recent if key is not None and at > now - period)
            self.check(
                max(keys.values(), default=0) <= most, f"{keys} of {queue} were started within {period} ms, of {most}"
            )

    def starts(self) -> dict[Key, tuple[int, str, str | None]]:
        """Returns the time in ms, the queue and the key of every start."""
        return dict(self._starts)

    def failed_over(self, before: Tables, after: Tables) -> None:
        """The server has forgotten its last commits."""
        world = self._world
        self._forgotten |= {key for key, (_, version) in self._issued.items() if version > after.version}
        self._issued = {
            key: (job, 0 if key in self._forgotten else version) for key, (job, version) in self._issued.items()
        }
        self._starts = {key: start for key, start in self._starts.items() if key not in self._forgotten}
        self.lost |= before.seqs.keys() - after.seqs.keys()
        self._declared(after)
        world.note(f"the server forgets {before.version - after.version} commits, of {before.at - after.at:.3f} s")

    # the end

    def final(self) -> None:
        """Everything is done: nothing is lost but what a failover forgot, and nothing was done twice."""
        tables = self._world.server.tables
        missing = self._world.enqueued - self.lost - tables.seqs.keys()
        self.check(not missing, f"lost: {sorted(missing)}")
        done = Counter(seq for (seq, _), outcome in tables.ends.items() if outcome == "done")
        parents: set[str] = set()
        for seq, row in tables.jobs.items():
            job = row.new.id
            self.check(row.state in FINISHED, f"{job} is {row.state}")
            self.check(row.state is not State.CANCELLED, f"{job} is cancelled, and nobody has asked for it")
            trouble = row.failures + row.crashes > 0
            self.check(row.state is not State.FAILED or trouble, f"{job} has failed, though nothing was wrong with it")
            self.check(done[seq] == (row.state is State.DONE), f"{job} was completed {done[seq]} times")
            keys = [key for key, outcome in tables.ends.items() if key[0] == seq and outcome == "done"]
            if any(self._world.fates[job, key[1]].how == "child" for key in keys):
                parents.add(job)
        children = {f"{job}+" for job in parents}
        found = {job for job in tables.seqs if job.endswith("+")}
        self.check(found == children, f"children without an accepted parent, or lost ones: {sorted(found ^ children)}")


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _paces(text: str | None) -> set[Pace]:
    if text is None:
        return set()
    most, unit = text.split("/")
    return {(int(most), UNITS[unit])}
