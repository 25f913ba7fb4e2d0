"""Mutants of who is found hung, how a worker is brought to its end, and what the hands do."""

from mutant import Mutant

LIVENESS = (
    # liveness
    Mutant(
        name="a late step is not forgiven",
        file="model/place.py",
        old="        self.framed_at += late\n",
        new="        return\n        self.framed_at += late\n",
        profile="watch",
        first=19,
    ),
    Mutant(
        name="a late step is judged before it is forgiven",
        folder="tests/simulation",
        file="hands.py",
        old="        self.fleet.late(late)\n",
        new="        self.order(lambda: self.fleet.late(late))\n",
        profile="a machine that slept",
    ),
    Mutant(
        name="silence is judged before the sockets were read",
        folder="tests/simulation",
        file="hands.py",
        old="        if self._readable or self._orders:\n            self._hear()\n        if self._dying:\n",
        new="        if self._supervise_at <= now:\n            self.tell(Tick(late if late > LATE else 0.0))\n"
        "            self._supervise_at, late = now + 60, 0.0\n"
        "        if self._readable or self._orders:\n            self._hear()\n        if self._dying:\n",
        profile="watch",
        first=91,
    ),
    Mutant(
        name="silent is hung, whatever the CPU time",
        file="model/watch.py",
        old="            if cpu == place.cpu:\n",
        new="            if cpu is not None:\n",
        profile="watch",
    ),
    Mutant(
        name="silent is never hung",
        file="model/watch.py",
        old="            if cpu == place.cpu:\n",
        new="            if cpu is None:\n",
        profile="watch",
    ),
    Mutant(
        name="beating is enough",
        file="model/watch.py",
        old="            return Reason.HUNG if now - place.turned_at >= self._policy.idle else []\n",
        new="            return []\n",
        profile="watch",
        first=35,
    ),
    Mutant(
        name="a busy worker that stands still is hung",
        file="model/watch.py",
        old="        if cpu - place.still_cpu <= OWN_CPU + OWN_SHARE * passed:\n",
        new="        if passed >= self._policy.still:\n",
        profile="watch",
        seeds=150,
    ),
    Mutant(
        name="a slow load cannot ask for time",
        file="model/watch.py",
        old="        place.load_until = max(place.load_until, now + min(seconds, LONGEST_LOAD))\n",
        new="",
        profile="watch",
        first=51,
    ),
    Mutant(
        name="a job's time begins with the worker's",
        file="model/fleet.py",
        old="        place.job_until = None if timeout is None else now + timeout\n",
        new="        place.job_until = None if timeout is None else place.started_at + timeout\n",
        profile="work",
    ),
    # ends
    Mutant(
        name="no grace",
        file="model/ending.py",
        old="        self._stage(place, 1, now + self._policy.grace)\n",
        new="        self._stage(place, 1, now + self._policy.terminate)\n",
        profile="people",
    ),
    Mutant(
        name="nobody is asked where it stands",
        file="model/ending.py",
        old="        self._stage(place, 2, now + self._policy.stacks)\n",
        new="        self._stage(place, 2, now)\n",
        profile="watch",
    ),
    Mutant(
        name="one that does not go is not pressed",
        file="model/ending.py",
        old="        self._stage(place, place.stage + 1, now + self._policy.terminate)\n",
        new="        self._stage(place, place.stage + 1, now + 9 * self._policy.terminate)\n",
        profile="people",
    ),
    Mutant(
        name="a crash report names the breaker",
        file="model/roster.py",
        old="        place.history.add(now, charge=charge)\n",
        new="        place.history.add(now, charge=charge)\n        place.reason = Reason.BREAKER\n",
        profile="breaker",
    ),
    Mutant(
        name="one that was restarted by a person waits for a backoff",
        file="model/roster.py",
        old="        if place.after is After.START:\n            self.start(place)\n",
        new="",
        profile="people",
    ),
    Mutant(
        name="recycled one job late",
        file="model/fleet.py",
        old="place.jobs >= terms.recycle_jobs)",
        new="place.jobs > terms.recycle_jobs)",
        profile="work",
    ),
    Mutant(
        name="sleepers are not woken",
        file="model/fleet.py",
        old="            self.start(place)\n        return []\n\n    # a worker speaks\n",
        new="            pass\n        return []\n\n    # a worker speaks\n",
        profile="people",
    ),
    Mutant(
        name="claims are released before the kill",
        file="model/ledger.py",
        old="        self._dismissed.add(worker)\n",
        new="        self._dismissed.add(worker)\n        held = self.held.pop(worker, None)\n"
        "        if held is not None:\n            self._record(held, Returned(), now=held.since)\n",
        profile="watch",
    ),
)
