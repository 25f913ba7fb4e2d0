"""All promises together: what is handed to whom, what people ordered, and the parts of the other modules.

Nothing here asks the shipped code what it thinks: it is written from the specification, and told what happens.
"""

from actors import Worker
from oracle_liveness import LivenessPromises
from record import Record

from chargehand.model.job import Claim, Outcome


class Oracle(LivenessPromises):
    """See the module. It raises Broken."""

    # frames

    def heard(self, worker: Worker, status: str, memory: int) -> None:
        life = self.life(worker)
        life.heard_at = self.world.now
        if status == "stopping" and life.asked_at is None and life.verdict is None:
            life.sigterm = True  # it goes, and that was not the node's wish
        life.memory = memory

    def ready(self, worker: Worker) -> None:
        life = self.life(worker)
        life.ready_at = life.idle_since = life.heard_at = self.world.now
        self._changed_at = self.world.now

    # work

    def handed(self, worker: Worker, claim: Claim) -> None:
        life, terms = self.life(worker), self.world.profile.crews[worker.crew]
        hands = [w for w in self.world.processes if w.claim is not None and w.claim.id == claim.id]
        self.check(not hands, f"job {claim.id} is in two living hands: {hands}")
        self.check(worker.claim is None and life.held is None, f"{worker} has two jobs in hand")
        self.check(life.ready_at is not None, f"{worker} gets a job before it said that it is ready")
        self.check(not self.stopping, f"{worker} gets a job though the node stops")
        self.check(life.asked_at is None, f"{worker} gets a job after it was asked to stop")
        self.check(life.verdict is None, f"{worker} gets a job though it is condemned")
        self.check(not life.dismissed and not life.may_be_asked, f"{worker} gets one more job though it is to leave")
        self.check(worker.crew == claim.queue, f"{worker} gets a job of {claim.queue}")
        paused = self.applied & {"*", worker.crew, worker.component}
        self.check(not paused, f"{worker} gets a job though {paused} is paused")
        worn = terms.recycle_jobs is not None and life.jobs >= terms.recycle_jobs
        large = terms.recycle_memory is not None and life.jobs > 0 and life.memory > terms.recycle_memory
        self.check(not worn and not large, f"{worker} gets a job though it is to be recycled ({life.jobs} done)")
        self.jobs.handed(claim)
        life.held, life.handed_at, life.idle_since = claim, self.world.now, None
        self.world.tally["jobs handed out"] += 1

    def performed(self, worker: Worker, claim: Claim, outcome: Outcome) -> None:
        life = self.life(worker)
        self.check(life.held == claim, f"{worker} ends job {claim.id}, but has {life.held}")
        self.jobs.performed(claim, outcome)
        life.held, life.idle_since = None, self.world.now
        life.jobs += 1
        self.done[worker.crew] += 1

    # people

    def paused(self, scopes: frozenset[str]) -> None:
        self.applied = scopes

    def ordered(self, verb: str, components: list[str]) -> None:
        """What a person wants, before the fleet hears of it."""
        self.forgiven = set()
        self._reset = set()
        for component in components:
            record = self.records[component]
            getattr(self, f"_order_{verb}")(record)

    def _order_start(self, record: Record) -> None:
        if record.intent == "remove" or record.state in ("failed", "breaker", "due"):
            return
        record.intent = "run"
        if record.life is None:
            record.due(self.world.now)

    def _order_stop(self, record: Record) -> None:
        if record.state == "failed":
            return
        record.intent = "remove" if record.intent == "remove" else "stay"
        if record.life is None:
            record.state = "stay"
        else:
            record.life.may_be_asked = True

    def _order_drain(self, record: Record) -> None:
        if record.life is not None and record.life.held is not None:
            record.intent = "remove" if record.intent == "remove" else "stay"
            record.life.dismissed = True
        else:
            self._order_stop(record)

    def _order_restart(self, record: Record) -> None:
        if record.life is not None:
            record.intent = "remove" if record.intent == "remove" else "run"
            record.life.may_be_asked = True
        else:
            self.forgiven.add(record.component)
            if record.state == "failed":
                record.forget()
            record.intent = "run"
            record.due(self.world.now)

    def _order_reset(self, record: Record) -> None:
        self.forgiven.add(record.component)
        self._reset.add(record.crew)
        record.forget()
        if record.life is None:
            record.intent = "run"
            record.due(self.world.now)

    def scaled(self, crew: str, count: int) -> None:
        """A person changes the size of a crew."""
        self.forgiven = set()
        for record in self.crew(crew):
            if record.index >= count:
                self.forgiven.add(record.component)
                record.intent = "remove"
                if record.life is not None and record.life.held is not None:
                    record.life.dismissed = True
                elif record.life is not None:
                    record.life.may_be_asked = True
            elif record.intent == "remove":
                record.intent = "run"
        for index in range(count):
            if f"worker:{crew}:{index}" not in self.records:
                self.add(crew, index)
