"""Who is asked, condemned and killed, when and why, written from the specification (SV-5 to SV-8, WK-7, WP-6, PD-3).

Judged by the truth about the worker, which the node cannot see: never killed while busy, found when hung.
"""

from actors import Worker
from book import EPS, HICCUP
from oracle_restarts import RestartPromises
from record import Life


class LivenessPromises(RestartPromises):
    """See the module."""

    # what the node does must be justified

    def asked(self, worker: Worker) -> None:
        now, life, record = self.world.now, self.life(worker), self.records[worker.component]
        terms = self.world.profile.crews[worker.crew]
        life.asked_at = now
        if life.may_be_asked or life.sigterm:
            return
        self.check(not life.busy, f"{worker} is asked to stop with a job in hand, though nobody wants that")
        worn = terms.recycle_jobs is not None and life.jobs >= terms.recycle_jobs
        large = terms.recycle_memory is not None and life.jobs > 0 and life.memory > terms.recycle_memory
        if life.dismissed or worn or large:
            if worn or large:
                self.world.tally["recycled"] += 1
            return
        idle = terms.idle_exit is not None and life.idle_since is not None
        if idle and terms.idle_exit is not None and life.idle_since is not None:
            idle = now - life.idle_since >= terms.idle_exit - EPS
        self.check(idle, f"{worker} is asked to stop for no reason")
        self.world.tally["went to sleep"] += 1
        record.intent = "sleep"

    def terminated(self, worker: Worker) -> None:
        life, now = self.life(worker), self.world.now
        grace = self.world.profile.liveness.grace
        self.check(life.asked_at is not None and now - life.asked_at >= grace - EPS, f"{worker}: no grace")
        life.terminated_at = now
        self.world.tally["terminated"] += 1

    def killed(self, worker: Worker, reason: str) -> None:
        life, now, live = self.life(worker), self.world.now, self.world.profile.liveness
        if life.killed_at is not None:
            return  # it does not die of a SIGKILL; it gets another
        life.killed_at = now
        if reason == "bad frame":
            self.check(worker.garbage, f"{worker} is killed for a bad frame that it did not send")
            life.verdict = reason
        elif life.verdict is not None:
            self.check(now - life.condemned_at >= live.stacks - EPS, f"{worker} is killed before it could say where")
        else:
            pressed = life.terminated_at is not None and now - life.terminated_at >= live.terminate - EPS
            self.check(pressed, f"{worker} is killed for no reason: {reason}")

    def condemned(self, worker: Worker, reason: str) -> None:
        """The truth about a worker that the node takes for hung, or late."""
        life, now, live = self.life(worker), self.world.now, self.world.profile.liveness
        self.world.note(f"{worker} is condemned: {reason}")
        self.check(life.verdict is None and life.asked_at is None, f"{worker} is condemned on its way out")
        life.verdict, life.condemned_at = str(reason), now
        if not worker.alive:
            return
        silence = now - (worker.born if worker.sent_at is None else worker.sent_at)
        rests_since = worker.rests_since()
        rest = 0.0 if rests_since is None else now - rests_since
        still = now - worker.turned_at
        match str(reason):
            case "heartbeat timeout":
                self.check(silence >= live.silent - EPS, f"{worker} spoke {silence:.2f} s ago: not silent")
                self.check(rest >= live.silent / 2 - EPS, f"{worker} is busy, not hung")
            case "hung" if not life.busy:
                self.check(still >= live.idle - EPS, f"{worker} turned {still:.2f} s ago: not hung")
            case "hung":
                self.check(life.limit is None, f"{worker} has a job with a timeout: that rules")
                self.check(still >= live.still - EPS, f"{worker} turned {still:.2f} s ago: not hung")
                self.check(rest >= live.still - live.beat - EPS, f"{worker} is busy, not hung")
            case "start timeout":
                mute = worker.sent_at is None and now - worker.born >= live.first_frame - EPS
                self.check(life.ready_at is None and (mute or now >= worker.load_until - EPS), f"{worker} may load on")
            case "job timeout":
                if self.several(worker.crew):
                    self._told_in_vain(worker, life)
                else:
                    self._timed_out(worker, life)
            case "cancelled":
                self._recalled_in_vain(worker, life)
            case _:
                self.check(False, f"{worker} is condemned: {reason}")

    def _told_in_vain(self, worker: Worker, life: Life) -> None:
        """One that is replaced for a timeout of several jobs was told to end one, had its time, and has not done it."""
        told = {job: when for job, when in life.expired.items() if job in life.deadlines}
        self.check(bool(told), f"{worker} is replaced for a timeout, but was told of none")
        waited = self.world.now - min(told.values())
        self.check(waited >= self.world.profile.liveness.cancel - EPS, f"{worker} had only {waited:.2f} s for {told}")
        said = {m[1] for m in worker.work if m[0] == "outcome"}
        self.check(not set(told) <= said, f"{worker} is condemned, but has already said how {told} ended")
        assert self.world.node is not None
        life.blocked = self.world.node.fleet.places[worker.component].blocked
        if life.blocked:
            stands = len(told) > 1 and worker.turned_at <= min(told.values()) + self.world.profile.liveness.beat
            self.check(
                stands, f"{worker} turned at {worker.turned_at:.2f}, was told of {told}: its loop is not blocked"
            )

    def _timed_out(self, worker: Worker, life: Life) -> None:
        now, what = self.world.now, ", ".join(life.hand) or "a look"
        assert life.limit is not None
        over = now - life.handed_at - life.limit - self.slack(life.handed_at)
        self.check(over >= -EPS - life.unsure, f"{worker}: {what} had {-over:.3f} s left")
        self.check(over <= HICCUP, f"{worker}: the timeout of {what} was {over:.1f} s ago")
        said = [m for m in worker.work if m[0] in ("outcome", "found")]
        self.check(not said, f"{worker} is condemned, but it has already said how {what} ended")

    def _recalled_in_vain(self, worker: Worker, life: Life) -> None:
        """One that is replaced for a cancelled job was told, had its time, and has said nothing of it."""
        told = {job: when for job, when in life.recalled.items() if job in life.hand}
        self.check(bool(told), f"{worker} is replaced for a cancelled job, but has none in hand")
        waited = self.world.now - min(told.values())
        self.check(waited >= self.world.profile.liveness.cancel - EPS, f"{worker} had only {waited:.2f} s for {told}")
        said = {m[1] for m in worker.work if m[0] == "outcome"}
        self.check(not set(told) <= said, f"{worker} is condemned, but has already said how {told} ended")

    # what must be found is found

    def watch(self) -> None:
        """Nobody hangs, loads, works or stops for longer than allowed."""
        node = self.world.node
        if node is None or not node.attentive():
            return
        self.statuses(thoroughly=True)
        self.overdue()
        self.breakers_late()
        self.unrested()
        for record in list(self.records.values()):
            life = record.life
            if life is None or life.worker is None or not life.worker.alive:
                continue
            slack = HICCUP + self.slack(life.started_at)
            if life.killed_at is not None:
                continue
            if life.asked_at is not None:
                over = self.world.now - life.asked_at - self._grace() - slack
                self.check(over <= 0, f"{life.worker} should have been killed: asked {life.asked_at:.1f}")
            elif life.verdict is not None:
                over = self.world.now - life.condemned_at - self.world.profile.liveness.stacks - slack
                self.check(over <= 0, f"{life.worker} is condemned, but not killed")
            else:
                self._watch(life.worker, life, slack)

    def cancel_limit(self, crew: str) -> float:
        """How long a worker may keep a cancelled job: each of several that ends in time gives the others theirs."""
        several, _ = self.world.profile.batching.get(crew, (1, 0.0))
        return self.world.profile.liveness.cancel * several

    def _grace(self) -> float:
        return self.world.profile.liveness.grace + self.world.profile.liveness.terminate

    def _watch(self, worker: Worker, life: Life, slack: float) -> None:
        now, live = self.world.now, self.world.profile.liveness
        place = self.world.places()[worker.component]
        if self.several(worker.crew):
            self._watch_deadlines(worker, life, slack)
        elif life.busy and life.limit is not None:
            over = now - life.handed_at - life.limit
            self.check(over <= slack, f"{worker} has had {list(life.hand) or 'a look'} for too long")
        for job, when in life.recalled.items():
            over = now - when - self.cancel_limit(worker.crew)
            self.check(over <= slack, f"{worker} still has job {job}, though it was told {now - when:.1f} s ago")
        if life.ready_at is None:
            limit = worker.born + live.first_frame if worker.sent_at is None else worker.load_until
            self.check(now <= limit + slack, f"{worker} has loaded for too long")
        terms = self.world.profile.crews[worker.crew]
        if terms.idle_exit is not None and life.idle_since is not None:
            self.check(now - life.idle_since <= terms.idle_exit + slack, f"{worker} should have gone to sleep")
        self._found(worker, life, slack)
        heard_at = life.started_at if life.heard_at is None else life.heard_at
        if place.unresponsive:
            self.check(now - heard_at >= live.silent - EPS, f"{worker} is flagged as unresponsive, but it spoke")
        if place.stalled:
            least = live.lag if self.several(worker.crew) else live.stalled
            self.check(now - worker.turned_at >= least - EPS, f"{worker} is flagged as stalled, but it turned")

    def _watch_deadlines(self, worker: Worker, life: Life, slack: float) -> None:
        """Each of several jobs is told when its time is over, and the worker is replaced if that does not help."""
        now, live = self.world.now, self.world.profile.liveness
        for job, (since, limit) in life.deadlines.items():
            if job in life.expired:
                over = now - life.expired[job] - live.cancel
                self.check(over <= slack, f"{worker} still has {job}, though it was told that its time is over")
            elif limit is not None and job not in life.recalled:
                self.check(now - since - limit <= slack, f"{worker} has had {job} for too long, and was not told")

    def _found(self, worker: Worker, life: Life, slack: float) -> None:
        """Hung is found; busy is flagged."""
        now, live = self.world.now, self.world.profile.liveness
        rests, place = worker.rests_since(), self.world.places()[worker.component]
        spoke = worker.born if worker.sent_at is None else worker.sent_at
        if worker.mute and worker.sent_at is not None:
            if rests is not None:
                # What was said while the node stood still counts from when it was heard.
                since = max(spoke, rests, life.heard_at or 0.0)
                self.check(now - since <= live.silent + slack, f"{worker} is silent and at rest: hung")
            elif now - spoke > live.silent * 1.5 + slack:
                self.check(place.unresponsive, f"{worker} is silent and busy, but not flagged as unresponsive")
        elif worker.stuck and life.ready_at is not None and not worker.mute:
            still = now - worker.turned_at
            blocked = now - max(worker.turned_at, life.busy_since)  # the loop of an idle worker need not turn so often
            if self.several(worker.crew) and life.busy and blocked > live.lag + live.beat + slack:
                self.check(place.stalled, f"the loop of {worker} is blocked, but it is not flagged as stalled")
            if not life.busy:
                self.check(still <= live.idle + 2 * live.beat + slack, f"{worker} does not turn: hung")
            elif life.limit is None and rests is not None:
                waited = now - max(rests, life.handed_at, worker.turned_at)
                self.check(waited <= 2 * live.still + 3 * live.beat + slack, f"{worker} stands still at rest: hung")
            elif life.limit is None and still > live.stalled + live.still + 3 * live.beat + slack:
                self.check(place.stalled, f"{worker} stands still though busy, but is not flagged as stalled")
