"""Which failures are a job's own, and which process may be replaced for failing, from the specification (WP-13).

The truth about processes (`Worker.sick`) is known here, and not to the node.
"""

from typing import TYPE_CHECKING

import msgspec
from clockwork import Broken

from chargehand.model.job import Claim, Done, Outcome, Raised
from chargehand.model.trust import Distrust

if TYPE_CHECKING:
    from actors import Worker
    from stage import World

SUSPECT_AFTER = 3


class Past(msgspec.Struct):
    """The successes and failures of one process."""

    crew: str
    born: int
    """How many jobs its crew had done well when it became ready."""
    fresh: bool
    """Whether it is the process that followed a probe, and no job was done well in between."""
    wins: int = 0
    since: int = 0
    """How many jobs its crew had done well when it last did one."""
    failed: set[str] = msgspec.field(default_factory=set[str])


class Failures(msgspec.Struct):
    """What has failed one job so far: each process, and how many jobs that process had done well by then."""

    where: list[tuple[int, int]] = msgspec.field(default_factory=list[tuple[int, int]])
    credible: bool = False
    sick: set[int] = msgspec.field(default_factory=set[int])
    """The sick processes in which it failed."""
    own: int = 0
    """How often it failed by itself, or with the upstream."""


class Trials:
    """Keeps the past of every process and of every failed job."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._pasts: dict[int, Past] = {}
        self._wins: dict[str, int] = {}
        self.probed: set[str] = set()
        """Crews of which one process was replaced as a probe, and that did nothing well since."""
        self._broken: set[int] = set()
        self._accused: dict[str, int] = {}
        self.failures: dict[str, Failures] = {}

    def node_starts(self) -> None:
        """A new node has new processes, and knows of earlier ones only where a job failed."""
        self._pasts.clear()
        self._wins.clear()
        self.probed.clear()
        self._broken.clear()
        self._accused.clear()

    def ready(self, worker: "Worker") -> None:
        wins = self._wins.setdefault(worker.crew, 0)
        self._pasts[worker.pid] = Past(worker.crew, wins, worker.crew in self.probed, since=wins)

    def broke(self, worker: "Worker") -> None:
        self._broken.add(worker.pid)

    def performed(self, worker: "Worker", first: str, claim: Claim, outcome: Outcome) -> tuple[bool, bool]:
        """Returns whether this failure, or one before it, is credible; and whether it is the job's own."""
        past = self._pasts[worker.pid]
        if isinstance(outcome, Done):
            past.wins += 1
            self._wins[past.crew] += 1
            past.since = self._wins[past.crew]
            past.failed.clear()
            self.probed.discard(past.crew)
            if past.crew in self._accused:
                self._broken.add(self._accused.pop(past.crew))
            for other in self._pasts.values():
                if other.crew == past.crew:
                    other.fresh = False
        if not isinstance(outcome, Raised):
            return True, False
        failures = self.failures.get(claim.id, Failures())
        before = [(pid, wins) for pid, wins in failures.where if pid not in self._broken]
        elsewhere = any(pid != worker.pid for pid, _ in before)
        works = any(pid == worker.pid and past.wins > wins for pid, wins in before)
        own = failures.credible or elsewhere or works
        if not own:
            past.failed.add(first)  # a job that fails elsewhere, too, says nothing of this process
        return own or (past.fresh and past.crew in self.probed), own

    def wins(self, worker: "Worker") -> int:
        """How many jobs this process has done well."""
        return self._pasts[worker.pid].wins

    def settled(self, job: str, pid: int, wins: int, *, credible: bool, sick: bool) -> None:
        """The failure is written; what was not written has not happened."""
        failures = self.failures.setdefault(job, Failures())
        failures.where = [each for each in failures.where if each[0] not in self._broken]
        failures.where.append((pid, wins))
        failures.credible |= credible
        if sick:
            failures.sick.add(pid)
        else:
            failures.own += 1

    def distrusted(self, worker: "Worker", distrust: Distrust) -> None:
        """A process is replaced: it failed often enough, and others did well or it is the only one that is tried."""
        past = self._pasts[worker.pid]
        elsewhere = self._wins[past.crew] > past.since
        if len(past.failed) >= SUSPECT_AFTER and elsewhere and not distrust.probe:
            self._broken.add(worker.pid)
            self._world.tally["replaced: others can do it"] += 1
            return
        if past.crew in self.probed:
            raise Broken(f"{worker} is replaced though its crew was probed and did nothing well since: {distrust.text}")
        self.probed.add(past.crew)
        if len(past.failed) >= SUSPECT_AFTER:
            self._accused[past.crew] = worker.pid
        self._world.tally["replaced: as a probe"] += 1

    def failed_for_good(self, job: str, crew: str, max_attempts: int) -> None:
        """A good job with several attempts does not fail because of one broken process.

        While a crew does nothing well, though one process is fresh, nobody can tell a broken process from bad jobs.
        """
        failures = self.failures.get(job)
        if failures is None or max_attempts < 2 or failures.own or crew in self.probed:
            return
        if len(failures.sick) < 2:
            raise Broken(f"good job {job} failed for good in {failures.sick}, which are sick")
