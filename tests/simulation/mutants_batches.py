"""Mutants of what becomes of several jobs in one hand."""

from mutant import Mutant

BATCHES = (
    Mutant(
        name="all of a batch are cancelled with one of them",
        file="model/ledger.py",
        old="            meant = cancelled is None or job in cancelled\n",
        new="            meant = True\n",
        profile="cancel",
        first=49,
    ),
    Mutant(
        name="a job with a past goes with others",
        file="model/held.py",
        old="    return claim.crashes > 0 or claim.failures > 0\n",
        new="    return claim.crashes > 1 or claim.failures > 1\n",
        profile="several",
        first=2,
    ),
    Mutant(
        name="the end of one job is taken for that of another",
        file="model/held.py",
        old="        if job is not None and job != self.claim.id:\n",
        new="        if job is None:\n",
        profile="several",
        first=3,
    ),
    Mutant(
        name="of a dead worker's batch only the first comes back",
        file="model/ledger.py",
        old="        for job, claim in held.claims.items():\n            meant",
        new="        for job, claim in [(held.claim.id, held.claim)]:\n            meant",
        profile="several at once",
    ),
    Mutant(
        name="a batch has the time of the least patient of its jobs",
        file="model/held.py",
        old="    return max(timeouts) / 1000 if",
        new="    return min(timeouts) / 1000 if",
        profile="several",
        first=3,
    ),
    Mutant(
        name="a batch with an endless job has a timeout",
        file="model/held.py",
        old=" if len(timeouts) == len(claims) else None\n",
        new=" if timeouts else None\n",
        profile="several",
        first=31,
    ),
    Mutant(
        name="jobs wait for others for ever",
        file="model/held.py",
        old="                self.gather_until = now + self.batch_wait\n",
        new="                self.gather_until = now + 3600\n",
        profile="several at once",
    ),
    Mutant(
        name="all that is there goes together",
        file="model/held.py",
        old="        return min(len(self.prefetched), self.batch)\n",
        new="        return len(self.prefetched)\n",
        profile="several",
        first=6,
    ),
    Mutant(
        name="the jobs of a batch do not wear a worker out",
        file="model/fleet/fleet.py",
        old="        place.jobs += 1\n        if job == place.job:\n",
        new="        if job == place.job:\n",
        profile="several",
    ),
)
