"""Mutants of what several nodes on one store promise (MN-2, MN-5, WK-4, WK-12)."""

from mutant import Mutant

CLUSTER_MUTANTS = (
    # claim numbers
    Mutant(
        name="the store counts claims",
        file="cluster_store.py",
        old="        claims = tuple(_claim(row, number, self._now_ms) for row in taken)\n        for row in taken:\n",
        new="        number = 1 + max((row.fence for row in taken), default=0)\n"
        "        claims = tuple(_claim(row, number, self._now_ms) for row in taken)\n        for row in taken:\n",
        profile="a claim that a failover forgot",
        simulator=True,
    ),
    Mutant(
        name="the number of a claim is the hour",
        file="ids.py",
        old='    return (clock.now_ms() << RANDOM_BITS | int.from_bytes(os.urandom(4), "big") >> 32 - RANDOM_BITS)'
        " & (1 << 63) - 1\n",
        new="    return clock.now_ms() // 3_600_000\n",
        profile="a node that others took for dead",
    ),
    Mutant(
        name="the number of a claim is not compared",
        file="cluster_store.py",
        old="            if row is None or row.claim is None or row.claim != each.claim:\n",
        new="            if row is None or row.claim is None:\n",
        profile="a node that others took for dead",
        simulator=True,
    ),
    Mutant(
        name="what a refused outcome enqueues is enqueued",
        file="cluster_store.py",
        old="                lost.append(each.id)\n",
        new="                lost.append(each.id)\n                self.enqueue(each.follow)\n",
        profile="a node that others took for dead",
        simulator=True,
    ),
    # expiry
    Mutant(
        name="observations survive a reconnect",
        file="stores/postgres/beats.py",
        old="        if connection != self._connection:\n",
        new="        if self._connection is None:\n",
        profile="an outage costs no work",
    ),
    Mutant(
        name="a beat is not noticed",
        file="stores/postgres/beats.py",
        old="(node.beat, at if beat == node.beat else now)",
        new="(node.beat, at)",
        profile="a short absence",
    ),
    Mutant(
        name="a session that has ended proves that the node is dead",
        file="model/lease.py",
        old="    return node.lease * SHORT if session_ended and not node.stops else node.lease\n",
        new="    return node.lease * SHORT if session_ended else node.lease\n",
        profile="a failover while a node is cut off",
    ),
    Mutant(
        name="a node elsewhere is dead at once",
        file="model/succession.py",
        old="            self._since = now\n            return Fate.UNKNOWN\n",
        new="            self._since = now\n            return Fate.DEAD\n",
        profile="a node that starts again",
    ),
    Mutant(
        name="a node that was here is watched as if it were elsewhere",
        file="model/succession.py",
        old="        if is_here(last.about, self._own):\n",
        new="        if last.about.boot is None and is_here(last.about, self._own):\n",
        profile="a node that starts again",
    ),
    # answers that are lost
    Mutant(
        name="the claims of a turn without an answer stay",
        file="model/doubts.py",
        old="        return self._turns[0] if self._turns else None\n",
        new="        return None\n",
        profile="an answer that is lost",
    ),
    Mutant(
        name="outcomes of a turn without an answer count as refused",
        file="model/doubts.py",
        old="        self._outcomes |= self._turns.pop(0).outcomes\n",
        new="        self._turns.pop(0)\n",
        profile="an answer that is lost",
    ),
    Mutant(
        name="a node knows only its last life",
        file="cluster_client.py",
        old="        lives = sorted(self._former)\n",
        new="        lives = [former.life]\n",
        profile="a new life without an answer",
        simulator=True,
    ),
    # when_cut_off
    Mutant(
        name="work that must not overlap goes on",
        file="model/ledger.py",
        old="        return self._cut(running)\n",
        new="        return self._cut(running)[:0]\n",
        profile="work that must not overlap",
    ),
    Mutant(
        name="work that must not overlap is cancelled when the lease ends",
        file="model/lease.py",
        old="        self._after = lease * (1 - MARGIN) - min(ends, lease * LONGEST_CANCEL)\n",
        new="        self._after = lease * (1 - MARGIN)\n",
        profile="work that must not overlap",
    ),
    Mutant(
        name="the time for stack traces is not counted",
        file="model/lease.py",
        old="    return liveness.cancel + liveness.stacks\n",
        new="    return liveness.cancel\n",
        profile="stack traces that take long",
    ),
    Mutant(
        name="what stops because the node is cut off is cancelled for good",
        file="model/ledger.py",
        old="        if isinstance(outcome, Stopped) and (claim.seq, claim.number) in self._cut_short:\n",
        new="        if isinstance(outcome, Stopped) and not self._cut_short:\n",
        profile="a short absence",
    ),
    Mutant(
        name="a crew that was cut off does not work again",
        file="model/ledger.py",
        old="        self._cut_off = frozenset()\n        self.pause(self._scopes, now)\n",
        new="        self.pause(self._scopes, now)\n",
        profile="a short absence",
    ),
    Mutant(
        name="a crew that is cut off gets jobs",
        file="model/ledger.py",
        old=" or crew in scopes or crew in self._cut_off\n",
        new=" or crew in scopes\n",
        profile="an answer that comes late",
    ),
    Mutant(
        name="any answer shows that the node is connected",
        file="model/lease.py",
        old="        if not self.cut_off or now >= self._beat_at + self._after:\n",
        new="        if not self.cut_off:\n",
        profile="an answer that comes late",
    ),
    Mutant(
        name="a beat counts from its answer",
        file="cluster_node.py",
        old="            if self.cut_off.beaten(self._submitted_at, now):\n",
        new="            if self.cut_off.beaten(now, now):\n",
        profile="an answer that comes late",
        simulator=True,
    ),
    Mutant(
        name="a node beats as seldom as if none of its work had to stop",
        file="model/lease.py",
        old="        return self._after / 2\n",
        new="        return self._after * 9\n",
        profile="a node that is alone",
    ),
    Mutant(
        name="what others have taken is cancelled for good",
        file="model/ledger.py",
        old="        return self._cut(taken)\n",
        new="        return [(worker, claim.id) for worker, claim in taken]\n",
        profile="a release that a failover forgot",
    ),
    # limits across nodes
    Mutant(
        name="the largest limit counts",
        file="model/limits.py",
        old="    return min((limit for limit in (one, other) if limit is not None), default=None)\n",
        new="    return max((limit for limit in (one, other) if limit is not None), default=None)\n",
        profile="limits of all nodes",
    ),
    Mutant(
        name="a node may run as many as the limit says, whatever others run",
        file="model/limits.py",
        old="max(0, limit.queue - running)",
        new="limit.queue",
        profile="limits of all nodes",
    ),
    Mutant(
        name="a key may have as many as its limit says in each claim",
        file="model/limits.py",
        old="    used = dict(running)\n",
        new="    used: dict[str, int] = {}\n",
        profile="limits of all nodes",
    ),
    # notifications
    Mutant(
        name="a notified node looks once",
        file="model/wakeups.py",
        old="        self._again_at = now + LOOK_AGAIN\n",
        new="        self._again_at = None\n",
        profile="jobs that come together",
    ),
    Mutant(
        name="a notified node does not claim",
        file="model/ledger.py",
        old="            if pool.prefetched or (room and not pool.check_store):\n",
        new="            if pool.prefetched:\n",
        profile="notifications and their loss",
    ),
)
