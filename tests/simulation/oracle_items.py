"""What must be true of items, written from the specification (WK-10): what becomes of each when it is found.

Judged by the jobs that the item has had and by the application's own table, never by what the node remembers.
"""

from collections.abc import Sequence
from typing import Any

from oracle_jobs import JobPromises, Truth

from chargehand.model.chores import QueueFound
from chargehand.model.records import Discovered, Discovery

MOST_DONE = 3
WINDOW_MS = 3_600_000
JUST_BEFORE_MS = 2500
"""What was done so shortly before a look may count as done during it."""
# What is found may be claimed in the same transaction, and runs when we look.
_NEW = """
SELECT seq, id, item, iif(state = 'failed', 'failed', 'queued') FROM chargehand_job
WHERE queue = ? AND item IS NOT NULL AND seq > ? ORDER BY seq
"""


class ItemPromises(JobPromises):
    """See the module."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._items: dict[tuple[str, str], list[Truth]] = {}
        """Of every item its jobs, oldest first."""
        self._last_seq: dict[str, int] = {}
        self._looked_ms: dict[str, int] = {}
        """When each crew was last asked to look."""

    def chore(self, chore: Any, done: Any) -> set[str]:
        return self._page(chore.page, done) if isinstance(chore, QueueFound) else super().chore(chore, done)

    def _page(self, page: Discovery, said: Discovered) -> set[str]:
        """A page is in the store: each new item has a job, and the others have none."""
        crew, now = page.queue, self._world.now_ms()
        rows = self._world.stage.store._db.execute(_NEW, (crew, self._last_seq.get(crew, 0))).fetchall()
        made = {item: "queued" if state == "queued" else "no progress" for _, _, item, state in rows}
        verdicts: dict[str, str] = {}
        for item in [found.item for found in page.found]:
            allowed = self._verdicts(crew, item, now)
            without = [verdict for verdict in allowed if verdict in ("held", "set aside")]
            verdict = verdicts[item] = made[item] if item in made or not without else without[0]
            self.check(verdict in allowed, f"item {item} of {crew} is {verdict}, but must be {allowed}")
            row = self._world.application.rows[item]
            fine = verdict != "queued" or row.needs or row.withdrawn
            self.check(fine, f"item {item} gets a job, but it has been done")
        self._world.note(f"a page of {crew}: {verdicts}")
        self.check([row[2] for row in rows] == [item for item in verdicts if item in made], f"{rows} of {verdicts}")
        counts = [list(verdicts.values()).count(each) for each in ("queued", "held", "set aside")]
        stuck = tuple(item for item, verdict in verdicts.items() if verdict == "no progress")
        self.check([said.queued, said.held, said.set_aside] == counts, f"{crew}: {said}, but they are {verdicts}")
        self.check(said.no_progress == stuck, f"{crew}: no progress with {said.no_progress}, not with {stuck}")
        self._new(page, rows, now)
        return {row[1] for row in rows}

    def _verdicts(self, crew: str, item: str, now: int) -> list[str]:
        """What may become of an item that was found."""
        jobs = self._items.get((crew, item), [])
        if not jobs:
            return ["queued"]
        newest = jobs[-1]
        if newest.state != "done":
            return ["held"] if newest.state in ("queued", "running") else ["set aside"]
        if newest.finished_ms > self._looked_ms[crew]:
            return ["held"]  # whoever looked may have read the table before
        since = max((n for n, job in enumerate(jobs) if job.retried), default=0)
        done = [job for job in jobs[since:] if job.finished_ms >= now - WINDOW_MS]
        follows = "no progress" if len(done) >= MOST_DONE else "queued"
        return ["held", follows] if newest.finished_ms > self._looked_ms[crew] - JUST_BEFORE_MS else [follows]

    def looks(self, crew: str) -> None:
        """Somebody is asked to look: there is not enough for everybody already."""
        self._looked_ms[crew] = self._world.now_ms()
        profile = self._world.profile
        fresh = [job for job in self.jobs.values() if job.queue == crew and job.item and job.state == "queued"]
        fresh = [job for job in fresh if not job.number]
        # A new node does not know how many wait; it learns it when it has once asked for more than there are.
        most = profile.enough + (profile.enough + profile.page) * (self._world.lives - 1)
        self.check(len(fresh) < most, f"{crew} looks for more, though {len(fresh)} of its items wait")

    def _new(self, page: Discovery, rows: Sequence[Any], now: int) -> None:
        for seq, job_id, item, state in rows:
            job = Truth(job_id, page.queue, (-page.priority, len(self.jobs)), page.max_attempts, (now, now), state)
            job.item, job.finished_ms = item, now
            job.reason = "no progress" if state == "failed" else None
            self.jobs[job_id] = job
            self._items.setdefault((page.queue, item), []).append(job)
            self._last_seq[page.queue] = seq
            self._world.tally["items: no progress" if state == "failed" else "items: queued"] += 1

    # the end

    def left(self) -> list[str]:
        """What still needs work by the application's own account, and was not set aside."""
        return [row.key for row in self._world.application.open() if not self._set_aside(row.crew, row.key)]

    def _set_aside(self, crew: str, item: str) -> bool:
        jobs = self._items.get((crew, item))
        return bool(jobs) and jobs[-1].state in ("failed", "cancelled")

    def final(self, poison: set[str]) -> None:
        super().final(poison)
        for row in self._world.application.rows.values():
            jobs = self._items.get((row.crew, row.key), [])
            self.check(not row.needs or self._set_aside(row.crew, row.key), f"item {row.key} was never done")
            if row.kind == "bad" and jobs:
                crashed = [job for job in jobs if job.state == "done"]
                self.check(not crashed, f"item {row.key} crashes whoever works on it, but {crashed} was done")
