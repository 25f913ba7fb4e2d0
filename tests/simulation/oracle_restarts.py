"""When a worker is started again and when it is given up, written from the specification (RP-1 to RP-7, SV-9)."""

from collections.abc import Iterable
from typing import Any

from actors import Worker
from book import EPS, HICCUP, Book
from gpus import EVERY, SLOWEST, need_of, used
from oracle_jobs import End
from record import Life, Record

from chargehand.model.fleet.cards import Need
from chargehand.model.fleet.lifecycle import BreakerClosed, BreakerOpened, Forgiven, GivenUp, Removed, Replace, Report

FATAL = {2: "configuration error", 3: "unrecoverable error"}

READING = 3 * (EVERY + SLOWEST)
"""Seconds until a change of the GPUs is known: a reading may fail, and may be late."""


class RestartPromises(Book):
    """See the module."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.breakers: dict[str, str] = {}
        """Crews of which one worker is tried, and which."""
        self._spawned_at = -1e9
        self._changed_at = 0.0
        self._reset: set[str] = set()
        """Crews that a person has just reset."""
        self.forgiven: set[str] = set()
        """Workers whose past a person has just cleared."""

    def node_starts(self, counts: dict[str, int], given_up: Iterable[str]) -> None:
        super().node_starts(counts, given_up)
        self.breakers.clear()
        self._spawned_at = -1e9

    def node_stops(self) -> None:
        super().node_stops()
        self.breakers.clear()

    # starting

    def spawned(self, component: str) -> None:
        now, starts = self.world.now, self.world.profile.starts
        record = self.records[component]
        others = [worker for worker in self.world.processes if worker.component == component]
        self.check(not others, f"two lives in {component}: {others}")
        if record.state == "asleep" and record.may_wake:
            record.intent = "run"
            record.due(now)
        self.check(record.state == "due", f"{component} is started, but it is {record.state} ({record.intent})")
        early = record.earliest - now
        self.check(early <= EPS, f"{component} is started {early:.3f} s before its time")
        self.check(now - self._spawned_at >= starts.stagger - EPS, f"{component} is started in step with another")
        loading = [r for r in self.records.values() if r.life is not None and r.life.ready_at is None]
        loading = [r for r in loading if r.life is not None and r.life.asked_at is None]
        self.check(len(loading) < starts.most_loading, f"{len(loading) + 1} workers load at the same time")
        self.check(self._fits(record), f"{component} is started, but there is no memory for it")
        if record.crashed:
            record.restarts += 1
            self._totals[component] = self._totals.get(component, 0) + 1
            record.unkept = True
        record.state, record.life, record.crashed, record.may_wake = "alive", Life(None, now), False, False
        self._assigned(record)
        self._spawned_at = self._changed_at = now

    def _fits(self, record: Record) -> bool:
        total, crews = self.world.profile.starts.memory, self.world.profile.crews
        taken = sum(crews[r.crew].memory or 0 for r in self.records.values() if r.life is not None)
        return total is None or taken + (crews[record.crew].memory or 0) <= total

    # GPUs (WP-14)

    def _holders(self, uuid: str) -> list[Need]:
        """What those need to whom a GPU is assigned, as long as their processes are not gone."""
        found = [need_of(self.world, r.crew) for r in self.records.values() if r.life is not None and uuid in r.gpus]
        return [need for need in found if need is not None]

    def _assigned(self, record: Record) -> None:
        assert self.world.node is not None
        need, sizes = need_of(self.world, record.crew), self.world.profile.gpus
        record.gpus = tuple(gpu.uuid for gpu in self.world.node.fleet.places[record.component].gpus)
        count = 0 if need is None else need.count
        self.check(len(set(record.gpus)) == count, f"{record.component} gets {record.gpus}, not {count} GPUs")
        for number, size in enumerate(sizes):
            holders = self._holders(f"GPU-{number}")
            whole = any(each.memory is None for each in holders)
            self.check(not whole or len(holders) == 1, f"GPU-{number} is shared with one that has it for itself")
            promised = sum(each.memory or 0 for each in holders)
            self.check(promised <= size, f"{promised} of GPU-{number} are promised, but it has {size}")

    def _has_gpus(self, record: Record) -> bool:
        """Whether there is room on the GPUs: by what is declared, and by what is really used, of earlier nodes too."""
        need, room = need_of(self.world, record.crew), 0
        if need is None:
            return True
        for number, size in enumerate(self.world.profile.gpus):
            holders = self._holders(f"GPU-{number}")
            if need.memory is None:
                room += not holders
            elif all(each.memory is not None for each in holders):
                declared = size - sum(each.memory or 0 for each in holders)
                room += min(declared, size - used(self.world, number)) >= need.memory
        return room >= need.count

    def not_started(self, component: str) -> None:
        record = self.records[component]
        record.life = None
        before = record.done_before  # nobody lived, so nobody crashed: what the crew does counts from before
        self._crashed(record, "not started", "not started", had_job=False, fatal=False)
        record.done_before = before

    def overdue(self) -> None:
        """Whoever is due and has room is started."""
        now, starts = self.world.now, self.world.profile.starts
        loading = sum(r.life is not None and r.life.ready_at is None for r in self.records.values())
        if loading >= starts.most_loading or now - self._changed_at < HICCUP + starts.stagger:
            return
        for record in self.records.values():
            late = now - record.latest - HICCUP - starts.stagger - self.slack(record.latest)
            if need_of(self.world, record.crew) is not None:
                late = min(late, now - self._changed_at - self.slack(self._changed_at)) - READING
            if record.state == "due" and late > 0 and self._fits(record) and self._has_gpus(record):
                self.check(False, f"{record.component} should have been started at {record.latest:.3f}")

    # a life ends

    def buried(self, worker: Worker) -> None:
        """What must follow, from what is known of the death."""
        now, record, life = self.world.now, self.records[worker.component], self.life(worker)
        policy = self.world.profile.restart
        record.rest(now, policy.healthy_after, policy.forgive_after)
        record.life = None
        self._changed_at = now
        held = bool(life.hand)
        fatal = worker.exit_code in FATAL and (worker.said is not None or not held)
        reason = self._reason(worker, life, fatal)
        self._jobs_end(record.crew, life, reason, fatal and worker.said is not None)
        if life.asked_at is not None and not life.sigterm and life.verdict is None:
            record.crashed, record.suspect = False, life.suspect
            self._emptied(record)
        elif reason in ("job timeout", "cancelled"):
            record.report = (reason, False)
            self._emptied(record)
            record.crashed = record.state != "stay"
        else:
            cause = f"{reason} {worker.exit_code} {worker.signal} {worker.said}"
            self._crashed(record, reason, cause, had_job=held, fatal=fatal)

    def _reason(self, worker: Worker, life: Life, fatal: bool) -> str:
        if life.verdict is not None:
            return life.verdict
        if life.sigterm:
            return "exited"
        if worker.oom:
            return "oom"
        if worker.signal:
            return "crash"
        if fatal and worker.exit_code is not None:
            return FATAL[worker.exit_code]
        return "set-up failed" if worker.exit_code == 5 and worker.said is not None else "exited"

    def _jobs_end(self, crew: str, life: Life, reason: str, gave_up: bool) -> None:
        """All that was in its hand: nobody knows which of several was to blame, but for those that were cancelled."""
        how = "crashed"
        if reason == "job timeout":
            how = "crashed" if life.blocked else "timed out"
        elif reason == "cancelled" or life.asked_at is not None or gave_up:
            how = "interrupted"
        for job, claim in life.hand.items():
            its = "cancelled" if reason == "cancelled" and job in life.recalled else how
            if reason == "job timeout" and self.several(crew) and not life.blocked and job not in life.expired:
                its = "interrupted"
            self.done[crew] += self.jobs.would_fail(claim, its)
            self.jobs.ended(claim, End(its))

    def _emptied(self, record: Record) -> None:
        """The place is empty, and nobody is to blame: what is wanted of it happens at once."""
        match record.intent:
            case "run":
                record.due(self.world.now)
            case "sleep":
                record.state = "asleep"
            case _:
                record.state = "stay"

    def _crashed(self, record: Record, reason: str, cause: str, *, had_job: bool, fatal: bool) -> None:
        now, policy, done = self.world.now, self.world.profile.restart, self.done[record.crew]
        charge = not had_job or record.done_before == done
        record.done_before, record.crashed, record.crash_at = done, True, now
        record.streak += 1
        record.unkept = True
        if charge:
            record.charged.append(now)
        if not had_job:
            record.idle_crash = (now, cause)
        record.report = (reason, charge)
        if record.intent not in ("run", "sleep"):
            record.state, record.crashed = "stay", False
            return
        record.intent = "run"
        rapid = [when for when in record.charged if when >= max(now - policy.window, record.rested_at)]
        if fatal or len(rapid) > policy.rapid_limit or len(record.charged) > policy.lifetime_limit:
            self.world.tally["given up: " + (reason if fatal else "limits")] += 1
            record.state = "failed"
            return
        pause = min(policy.first_pause * 2 ** (record.streak - 1), policy.longest_pause)
        record.due(now + pause, now + min(pause * 1.1, policy.longest_pause))
        if self.breakers.get(record.crew, record.component) != record.component:
            record.state = "breaker"

    def after_burial(self, component: str, crew: str) -> None:
        """The fleet has decided: is it what must follow?"""
        node = self.world.node
        assert node is not None
        record, place = self.records.get(component), node.fleet.places.get(component)
        if record is None or place is None:
            self.check(record is None and place is None, f"{component} was removed, or was not")
            return
        self.check(record.report is None, f"the crash of {component} was not reported")
        self.check(record.intent != "remove" or record.life is not None, f"{component} was to be removed")
        failed = record.state == "failed"
        self.check((place.status.value == "failed") == failed, f"{component}: {place.status}, must be {record.state}")
        if failed and self.breakers.get(crew) == component:
            del self.breakers[crew]
            left = [other.component for other in self.crew(crew) if other.state == "breaker"]
            self.check(not left, f"{component}, which was tried for all, was given up, but {left} wait for it")
        expected = {"stay": "stopped", "asleep": "asleep"}.get(record.state, place.status.value)
        self.check(place.status.value == expected, f"{component}: {place.status}, must be {expected}")
        crashed = record.crashed and record.crash_at == self.world.now
        if crashed and not failed and crew not in self.breakers and not self.stopping:
            both = self._epidemic(crew, leaving=True) and self._epidemic(crew, leaving=False)
            self.check(not both, f"all of {crew} crash of the same cause: no breaker")

    # breakers (SV-9)

    def _epidemic(self, crew: str, *, leaving: bool) -> bool:
        """All workers of a crew, two or more, crashed of the same cause within the window.

        Whether one that is just being replaced belongs to them is left open: both are right.
        """
        since = self.world.now - self.world.profile.restart.breaker_window
        meant = [r for r in self.crew(crew) if r.intent == "run" and r.state not in ("failed", "stay", "asleep")]
        if not leaving:
            meant = [r for r in meant if not self._leaves(r)]
        causes = {r.idle_crash[1] if r.idle_crash and r.idle_crash[0] >= since else None for r in meant}
        return len(meant) >= 2 and len(causes) == 1 and None not in causes

    def _leaves(self, record: Record) -> bool:
        life = record.life
        return record.state == "occupied" or (life is not None and (life.asked_at is not None or life.dismissed))

    def announced(self, action: Any) -> None:
        """The fleet tells people something: is it true?"""
        match action:
            case Report():
                record = self.records[action.component]
                found = (action.reason.value, action.charged)
                if found == ("suspect", False) and record.suspect:
                    record.suspect = False
                    return
                self.check(record.report == found, f"{action.component} is reported as {found}, not {record.report}")
                record.report = None
            case GivenUp(component, reason):
                self._given_up(self.records[component], reason)
            case Forgiven(component):
                self.check(component in self.forgiven, f"{component} is forgiven, but nobody asked for it")
            case Replace(component, _, pause):
                record, at = self.records[component], self.world.now + pause
                fits = record.earliest - EPS <= at <= record.latest + EPS
                self.check(fits, f"{component} comes back in {pause}, not at {record.earliest} to {record.latest}")
            case BreakerOpened(crew, _, probe):
                self._opened(crew, probe)
            case BreakerClosed(crew, why):
                self._closed(crew, why)
            case Removed(component):
                self.check(self.records[component].intent == "remove", f"{component} is removed")
                del self.records[component]
                self._statuses.pop(component, None)
            case _:
                pass

    def _given_up(self, record: Record, reason: str) -> None:
        if record.state == "breaker":
            probe = self.records.get(self.breakers.get(record.crew, ""))
            self.check(probe is not None and probe.state == "failed", f"{record.component} is given up: {reason}")
            record.state = "failed"
        self.check(record.state == "failed", f"{record.component} is given up too soon: {reason}")

    def _opened(self, crew: str, probe: str) -> None:
        either = self._epidemic(crew, leaving=True) or self._epidemic(crew, leaving=False)
        self.check(either, f"the breaker of {crew} opens, but not all crashed of the same cause")
        self.breakers[crew] = probe
        for record in self.crew(crew):
            if record.component != probe and record.state == "due" and record.crashed:
                record.state = "breaker"

    def _closed(self, crew: str, why: str) -> None:
        now, probe = self.world.now, self.records.get(self.breakers.pop(crew))
        well = probe is not None and probe.life is not None and probe.life.ready_at is not None
        if well and probe is not None and probe.life is not None and probe.life.ready_at is not None:
            well = now - probe.life.ready_at >= self.world.profile.restart.healthy_after - EPS
        gone = probe is None or probe.intent != "run" or (probe.life is not None and probe.life.asked_at is not None)
        gone = gone or (probe is not None and probe.life is not None and probe.life.dismissed)
        self.check(well or gone or crew in self._reset, f"the breaker of {crew} closes: {why}")
        for record in self.crew(crew):
            if record.state == "breaker":
                record.due(now)

    def breakers_late(self) -> None:
        """A breaker whose probe has run well for long enough is closed."""
        for crew, component in self.breakers.items():
            probe = self.records.get(component)
            if probe is None or probe.life is None or probe.life.ready_at is None:
                continue
            late = self.world.now - probe.life.ready_at - self.world.profile.restart.healthy_after
            self.check(late < HICCUP + self.slack(probe.life.ready_at), f"the breaker of {crew} stays open")
