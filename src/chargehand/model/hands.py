"""Decides how many short jobs a worker is handed at a time, and when those that it has not begun are called back.

Pure. A worker performs the jobs in its hand one after the other, in order. Only a job that it has begun can be charged
for its death; all others can be called back at any moment, because a worker needs a permit to begin one.
"""

from collections.abc import Sequence

from chargehand.model.held import Held, Pool, size_of
from chargehand.model.job import Claim, JobPolicy

MOST_CHARACTERS = 64 << 10
"""The maximum size of what is handed to a worker at once, beside the job that it begins."""
LONG = 0.005
"""Seconds after which the jobs behind one that still runs are called back: it takes longer than the whole hand."""
SPARED = 0.002
"""Seconds for which a worker may be idle while another has jobs that it has not begun."""
ALONE = 60.0
"""Seconds for which the workers of a crew are handed one job at a time after one of them has printed something."""


def most(pool: Pool, policy: JobPolicy, now: float) -> int:
    """Returns how many jobs a worker of this pool may have in its hand, with the one that it performs."""
    limit, mean = policy.most_in_hand, pool.mean
    if limit == 1 or pool.one_by_one or mean is None or pool.batch > 1 or now < pool.alone_until:
        return 1
    return max(1, min(limit, int(policy.seconds_in_hand / max(mean, 1e-5))))


def room(pool: Pool, held: Held, others: Sequence[Held], policy: JobPolicy, left: int | None, now: float) -> int:
    """Returns how many of the prefetched claims this worker is handed now, beside what it holds.

    Its hand is filled when it is half empty, with its fair share of all that nobody has begun. `others` is what the
    workers of the crew hold, with this one; `left` is how many jobs the worker may still end before it is replaced.
    """
    limit = most(pool, policy, now)
    has = 1 + len(held.ahead)
    late = now - held.since >= LONG
    if limit == 1 or has > (limit + 1) // 2 or late or not _may_wait(held.claim):
        return 0
    waiting = len(pool.prefetched) + sum(len(each.ahead) for each in others)
    share = -(-waiting // max(1, len(pool.available))) - len(held.ahead)
    return max(0, min(limit - has, share, limit if left is None else left - has))


def choose(pool: Pool, others: Sequence[Held], count: int) -> list[Claim]:
    """Removes up to so many claims from the front of the pool and returns them.

    None, if jobs of different priority wait here or in the hands of the crew: the most urgent one goes to whoever is
    free first.
    """
    chosen: list[Claim] = []
    if not count or not pool.prefetched:
        return chosen
    priority = pool.prefetched[0].priority
    if pool.prefetched[-1].priority != priority:
        return chosen
    if any(each.ahead[0].priority != priority for each in others if each.ahead):
        return chosen
    size = 0
    while pool.prefetched and len(chosen) < count:
        size += size_of(pool.prefetched[0])
        if size > MOST_CHARACTERS or not _may_wait(pool.prefetched[0]):
            break
        chosen.append(pool.prefetched.popleft())
    return chosen


def _may_wait(claim: Claim) -> bool:
    """Whether others may be in a hand with this job: one with a past is performed alone."""
    return not (claim.failures or claim.crashes or claim.suspect or claim.failed_in)


def recall_at(pool: Pool, held: Held) -> float | None:
    """Returns when what this worker has not begun is to be called back; None if it has surely begun everything."""
    if not held.unsure:
        return None
    due = held.since + LONG
    if pool.alone_until > held.since:
        return held.since
    if pool.idle and not pool.prefetched:
        due = min(due, pool.idle_since + SPARED)
    return due
