"""Mutants of several short jobs in one hand (WK-18)."""

from mutant import Mutant

HANDS = (
    Mutant(
        name="what waits behind a long job stays there",
        file="model/hands.py",
        old="    due = held.since + LONG\n",
        new="    due = held.since + 40 * LONG\n",
        profile="tiny",
    ),
    Mutant(
        name="what is called back from behind a long job is sent there again",
        file="model/hands.py",
        old="    late = now - held.since >= LONG\n",
        new="    late = False\n",
        profile="tiny and long",
    ),
    Mutant(
        name="an idle worker leaves others what they have not begun",
        file="model/hands.py",
        old="    if pool.idle and not pool.prefetched:\n",
        new="    if pool.idle and pool.prefetched:\n",
        profile="an idle sibling",
    ),
    Mutant(
        name="jobs with a past are sent ahead",
        file="model/hands.py",
        old="    return not (claim.failures or claim.crashes or claim.suspect or claim.failed_in)\n",
        new="    return True\n",
        profile="tiny",
    ),
    Mutant(
        name="a worker is sent more than it may do before it is replaced",
        file="model/hands.py",
        old="    return max(0, min(limit - has, share, limit if left is None else left - has))\n",
        new="    return max(0, min(limit - has, share))\n",
        profile="tiny",
    ),
    Mutant(
        name="a hand has no limit",
        file="model/hands.py",
        old="    return max(0, min(limit - has, share, limit if left is None else left - has))\n",
        new="    return max(0, min(share, 99 if left is None else left - has))\n",
        profile="tiny and long",
    ),
    Mutant(
        name="an urgent job waits for what is not begun",
        file="model/ledger.py",
        old="            if held.ahead and held.ahead[-1].priority < most.get(",
        new="            if not held.ahead and held.claim.priority < most.get(",
        profile="an urgent job and full hands",
    ),
    Mutant(
        name="what is called back is forgotten",
        file="model/ledger.py",
        old="            pool.prefetched.extendleft(back)\n",
        new="            pass\n",
        profile="tiny",
    ),
    Mutant(
        name="the next job is taken for begun though its permit came back",
        file="model/ledger.py",
        old="        emptied = held.permitted and count > len(back)\n",
        new="        emptied = False\n",
        profile="tiny",
    ),
    Mutant(
        name="a worker that had begun nothing gets nothing any more",
        file="model/ledger.py",
        old="        if emptied and worker in pool.available:\n            self._rest(worker, pool, now)\n",
        new="",
        profile="tiny",
    ),
    Mutant(
        name="a dying worker pays with what it has not begun",
        file="supervision.py",
        old="        self._deaf.add(worker)\n        self._take_back(worker)\n",
        new="        self._deaf.add(worker)\n",
        profile="tiny",
        simulator=True,
    ),
    Mutant(
        name="a paused crew goes on with what it has in hand",
        file="hands.py",
        old="        self.call_back()\n        self.oracle.paused(scopes)\n",
        new="        self.oracle.paused(scopes)\n",
        profile="a pause and full hands",
        simulator=True,
    ),
    Mutant(
        name="of the jobs that ended together one is not counted",
        file="model/ledger.py",
        old="        for _ in range(count):\n            held.begin_next(now)\n",
        new="        for _ in range(min(count, 2)):\n            held.begin_next(now)\n",
        profile="tiny",
    ),
)
