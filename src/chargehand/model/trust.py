"""Decides whether a failure is the job's own, and which worker process is replaced because it fails jobs others can do.

A process can be broken and still answer: a lost GPU context fails every job within microseconds, so that one process
takes most of the queue. Pure.
"""

from collections import deque

import msgspec

from chargehand.model.job import DEFAULT_POLICY, Claim

MOST_DOUBLINGS = 6
MOST_BROKEN = 256
"""How many broken processes are remembered."""


class FailedIn(msgspec.Struct, frozen=True, array_like=True):
    """Where a job has failed so far; None if it has failed in two processes, or in one that works."""

    process: str | None
    worker: str = ""
    wins: int = 0
    """How many jobs the process had done well when this job failed in it."""


class Trial(msgspec.Struct, frozen=True):
    """What a failure proves."""

    credible: bool
    """Whether the job may fail for good."""
    jobs_own: bool
    """Whether the job has failed in another process, too, or in one that has done other jobs well since."""
    failed_in: str
    """Where the job has failed so far, as JSON."""


class Distrust(msgspec.Struct, frozen=True):
    """A worker process that is to be replaced between jobs, and why."""

    worker: str
    text: str
    probe: bool = False
    """Whether it is replaced to see whether a fresh process does better; otherwise others do better."""


class _Standing(msgspec.Struct):
    """What is known of the current process of a worker."""

    process: str
    crew_wins: int
    """How many jobs its crew had done well when this process last did, or became ready."""
    probe: int
    """How many probes its crew had made when this process became ready."""
    wins: int = 0
    failed: set[str] = msgspec.field(default_factory=set[str])
    """The jobs that it has failed since it last did one well."""


_trials = msgspec.json.Decoder(FailedIn)
_encoder = msgspec.json.Encoder()


class Trust:
    """The record of successes and failures of one crew's processes."""

    def __init__(self, suspect_after: int = DEFAULT_POLICY.suspect_after) -> None:
        self._suspect_after = suspect_after
        self._standings: dict[str, _Standing] = {}
        self._wins = 0
        self._probes = 0
        self._probed = False
        """Whether a process was replaced as a probe, and no job of the crew has been done well since."""
        self._accused: str | None = None
        """The process that the probe replaced, if it failed several jobs: a success now proves that it was broken."""
        self._in_vain: dict[str, int] = {}
        """How often in a row a worker's process was replaced before it did a single job well."""
        self._broken: deque[str] = deque(maxlen=MOST_BROKEN)

    def ready(self, worker: str, process: str) -> None:
        """Records that a worker has a new process."""
        self._standings[worker] = _Standing(process, self._wins, self._probes)

    def gone(self, worker: str) -> None:
        """Forgets the process of a worker that has exited."""
        self._standings.pop(worker, None)

    def broke(self, worker: str) -> None:
        """Records that a process reported itself as broken: its earlier failures prove nothing."""
        self._broken.append(self._standings[worker].process)

    def succeeded(self, worker: str) -> None:
        """Records that a process did a job well."""
        standing = self._standings[worker]
        standing.wins += 1
        self._wins += 1
        standing.crew_wins = self._wins
        self._probed = False
        if self._accused is not None:
            self._broken.append(self._accused)
            self._accused = None
        if standing.failed:
            standing.failed.clear()
        if self._in_vain:
            self._in_vain.pop(worker, None)

    def judge(self, worker: str, claim: Claim) -> Trial:
        """Returns what it proves that this job failed in the worker's process."""
        standing = self._standings[worker]
        before = None if claim.failed_in is None else _trials.decode(claim.failed_in)
        if before is not None and before.process in self._broken:
            before = None
        if before is not None and (before.process != standing.process or standing.wins > before.wins):
            return Trial(True, True, _text(FailedIn(None)))
        fails_fresh = self._probed and standing.probe == self._probes  # a process that followed a probe fails, too
        return Trial(fails_fresh, False, _text(before or FailedIn(standing.process, worker, standing.wins)))

    def failed(self, worker: str, job: str) -> None:
        """Records that a process failed this job (of a batch: its first job), which may be the fault of either."""
        self._standings[worker].failed.add(job)

    def suspect(self, worker: str) -> Distrust | None:
        """Returns a replacement of this process if it has failed too many jobs in a row."""
        standing = self._standings[worker]
        count = len(standing.failed)
        if count < self._suspect_after * 2 ** min(self._in_vain.get(worker, 0), MOST_DOUBLINGS):
            return None
        if self._wins > standing.crew_wins:
            self._broken.append(standing.process)
            self._in_vain[worker] = self._in_vain.get(worker, 0) + (not standing.wins)
            return Distrust(worker, f"it failed {count} jobs in a row that others can do")
        return self.probe(worker, f"it failed {count} jobs in a row, and no other worker of the crew has done one")

    def probe(self, worker: str, text: str) -> Distrust | None:
        """Returns a replacement of this process that shows whether a fresh one does better; one until a success."""
        if self._probed:
            return None
        self._probed = True
        self._probes += 1
        standing = self._standings[worker]
        if len(standing.failed) >= self._suspect_after:
            self._accused = standing.process
        return Distrust(worker, text, probe=True)

    def failed_here(self, worker: str, claim: Claim) -> bool:
        """Whether the job has failed only in processes of this worker."""
        return claim.failed_in is not None and _trials.decode(claim.failed_in).worker == worker

    def failed_in_this(self, worker: str, claim: Claim) -> bool:
        """Whether the job has failed only in the current process of this worker."""
        return (
            claim.failed_in is not None and _trials.decode(claim.failed_in).process == self._standings[worker].process
        )


def _text(trial: FailedIn) -> str:
    return _encoder.encode(trial).decode()
