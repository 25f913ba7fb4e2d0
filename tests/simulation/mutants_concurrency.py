"""Mutants of what becomes of jobs that one worker performs at the same time (WP-15)."""

from mutant import Mutant

NAME = "at the same time"

CONCURRENCY = (
    Mutant(
        name="a job that crashed a worker is performed beside others",
        file="model/concurrent.py",
        old="    return claim.crashes > 0\n",
        new="    return claim.crashes > 1\n",
        profile=NAME,
    ),
    Mutant(
        name="others are given to a worker whose job must be alone",
        file="model/concurrent.py",
        old="worker not in self.blocked and worker not in self.alone\n            and held",
        new="worker not in self.blocked\n            and held",
        profile=NAME,
    ),
    Mutant(
        name="a worker gets one job more than it can perform",
        file="model/concurrent.py",
        old="            and held < self.concurrency and",
        new="            and held <= self.concurrency and",
        profile=NAME,
    ),
    Mutant(
        name="a worker whose loop is blocked gets jobs",
        file="model/concurrent.py",
        old="            worker in self.available and worker not in self.blocked and worker",
        new="            worker in self.available and worker",
        profile=NAME,
    ),
    Mutant(
        name="a reserved worker that waits in vain is never released",
        file="model/concurrent.py",
        old="            if not self.line:\n                self._release()\n",
        new="",
        profile=NAME,
    ),
    Mutant(
        name="a job that has ended keeps its slot",
        file="model/concurrent.py",
        old="        self.loads[worker] -= 1\n",
        new="        self.loads[worker] -= self.loads[worker] == 1\n",
        profile=NAME,
    ),
    Mutant(
        name="all jobs of a worker are timed out with one of them",
        file="model/fleet/place.py",
        old="            return {job for job, slot in self.slots.items() if slot.expired}\n",
        new="            return set(self.slots)\n",
        profile=NAME,
    ),
    Mutant(
        name="the worker is replaced as soon as one of its jobs has had its time",
        file="model/fleet/slots.py",
        old="                slot.expired, slot.end_at = True, now + self._policy.cancel\n",
        new="                slot.expired, slot.end_at = True, now\n",
        profile=NAME,
    ),
    Mutant(
        name="a job that goes on though its task was cancelled is never ended",
        file="model/fleet/slots.py",
        old="            slot.end_at = now + self._policy.cancel\n            self._expect(place, slot)\n",
        new="            slot.end_at = now + 1e9\n            self._expect(place, slot)\n",
        profile=NAME,
    ),
    Mutant(
        name="only the first of the deadlines is kept",
        file="model/fleet/slots.py",
        old="            place.job_until = slot.due if place.job_until is None else min(place.job_until, slot.due)\n",
        new="            place.job_until = slot.due if place.job_until is None else place.job_until\n",
        profile=NAME,
    ),
    Mutant(
        name="the delay of the node itself is held against jobs beside others",
        file="model/fleet/place.py",
        old="        for slot in self.slots.values():\n            slot.shift(late)\n",
        new="",
        profile=NAME,
    ),
    Mutant(
        name="a blocked loop is not flagged",
        file="model/fleet/watch.py",
        old="        if place.slots and now - place.turned_at >= self._policy.lag:\n",
        new="        if place.slots and now - place.turned_at >= self._policy.stalled:\n",
        profile=NAME,
    ),
    Mutant(
        name="a worker that is to be recycled gets jobs as long as it has some",
        file="model/fleet/fleet.py",
        old="        self._slots.ended(place, job)\n        if work:\n            place.jobs += 1\n",
        new="        self._slots.ended(place, job)\n        if work:\n            place.jobs += not place.slots\n",
        profile=NAME,
    ),
)
