"""The last hands on a worker: what it left is ended, what it said and held is heard, its death is put on record.

Nothing of a worker may be left when its job is given back and its place filled.
"""

import signal
from collections import deque
from collections.abc import Callable

import msgspec

from chargehand import clock, log
from chargehand.ids import new_id
from chargehand.model.fleet.death import Death, Evidence, Reason, last_outcome
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import Exited, Report, Status
from chargehand.model.ledger import Ledger
from chargehand.model.records import CrashReport
from chargehand.node.handle import Handle
from chargehand.node.loop import Loop
from chargehand.processes import proc
from chargehand.processes.child import kill_group, kill_orphans
from chargehand.processes.record import ProcessRecord

LONGEST_DYING = 30.0
"""Seconds that a process may take to die of a kill, at the most."""
LONGEST_LOOK = 1.0
"""Seconds until it is looked again, at the most, whether what a dead worker left is gone."""


class Reaper:
    """Sees to the dead. `hands` are the supervisor's; who is buried disappears from them."""

    def __init__(
        self,
        loop: Loop,
        fleet: Fleet,
        ledger: Ledger,
        lives: ProcessRecord,
        hands: dict[str, Handle],
        tell: Callable[[Exited], None],
    ) -> None:
        self._loop, self._fleet, self._ledger, self._lives = loop, fleet, ledger, lives
        self._hands, self._tell = hands, tell
        self._oom_kills = proc.oom_kills()
        """So many of the kernel's kills for want of memory were none of those that die next."""
        self._oom_before: deque[tuple[float, int]] = deque()
        self.dying: dict[int, Handle] = {}
        """Dead workers, by pid, of whom something is still left."""

    def beat(self) -> None:
        """From time to time: what the kernel killed a while ago has died by now. (A large process takes its time.)"""
        now = clock.monotonic()
        self._oom_before.append((now, proc.oom_kills()))
        while self._oom_before and self._oom_before[0][0] < now - LONGEST_DYING:
            self._oom_kills = max(self._oom_kills, self._oom_before.popleft()[1])

    def next_due(self) -> list[float]:
        """When it is to be looked again."""
        return [hand.look_at for hand in self.dying.values()]

    def look_again(self, now: float) -> None:
        """Whoever had something left may be through now."""
        for hand in [hand for hand in self.dying.values() if hand.look_at <= now]:
            self._bury(hand)

    def died(self, hand: Handle) -> None:
        """The kernel says that the process is gone. First hear what it still said; then see to what it left."""
        self._loop.remove(hand.child.pidfd)
        self._ledger.dismiss(hand.component)
        hand.hear_out()
        kill_group(hand.child)
        hand.exit = hand.child.exit()
        self.dying[hand.child.pid] = hand
        self._bury(hand)

    def _bury(self, hand: Handle) -> None:
        others = [other.child for other in self.dying.values() if other is not hand]
        try:
            left = bool(kill_orphans([other.child.pid for other in self._hands.values()], others))
        except OSError as error:  # no descriptor to look with: then nobody knows, and it is looked again
            log.warning("what a dead worker left cannot be seen", component=hand.component, why=error.strerror)
            left = True
        if left:
            hand.look_at = clock.monotonic() + hand.patience
            hand.patience = min(2 * hand.patience, LONGEST_LOOK)
            return
        del self.dying[hand.child.pid]
        del self._hands[hand.component]
        self._lives.drop(hand.child)
        self._judge(hand)
        hand.close()

    def _judge(self, hand: Handle) -> None:
        """Nothing is left of it: its job goes back, and the fleet hears of it."""
        if hand.output is not None:
            hand.output.close()  # with what it printed last, while it is known what it was doing
        place = self._fleet.places[hand.component]
        code, number = hand.exit or (None, None)
        death = Death(
            exit_code=code,
            signal=number,
            said=hand.said.why if hand.said else None,
            had_job=hand.component in self._ledger.held,
            oom=self._was_out_of_memory(hand, number),
        )
        stacks = hand.stacks()
        asked = place.status is Status.STOPPING
        who = f"{hand.who}, with {place.doing} in hand," if place.others else hand.who
        outcome = last_outcome(death, place.verdict, who, asked=asked, stacks=stacks)
        now = clock.monotonic()
        cancelled = place.recalled if place.verdict is Reason.CANCELLED else None
        jobs = [claim.id for claim in self._ledger.gone(hand.component, outcome, now, hand.child.pid, cancelled)]
        job = jobs[0] if jobs else None
        log.info(
            "worker exited", event=log.Event.WORKER_EXITED, component=hand.component, pid=hand.child.pid,
            exit_code=code, signal=number, job=job,
            **({"jobs": len(jobs)} if len(jobs) > 1 else {}),
        )  # fmt: skip
        lines = hand.output.lines if hand.output is not None else ()
        evidence = Evidence(
            incarnation=hand.child.mark,
            pid=hand.child.pid,
            exit_code=code,
            signal=number,
            job=job,
            memory=hand.health.memory if hand.health else None,
            uptime_ms=None if place.ready_at is None else int((now - place.ready_at) * 1000),
            stacks=stacks,
            lines=tuple(f"{line.level:7} {line.text}" for line in lines),
            frames=tuple(hand.bad),
        )
        done = self._ledger.pools[hand.crew].done
        self._tell(Exited(component=hand.component, death=death, crew_done=done, evidence=evidence))

    def _was_out_of_memory(self, hand: Handle, number: int | None) -> bool:
        if number != signal.SIGKILL or hand.killed:
            return False
        if proc.oom_kills() <= self._oom_kills:
            return False
        self._oom_kills += 1
        return True


def crash_report(report: Report) -> CrashReport:
    """Make the crash report that the store keeps."""
    return CrashReport(
        id=new_id(),
        component=report.component,
        crew=report.component.split(":")[1],
        reason=report.reason,
        text=report.text,
        charged=report.charged,
        follows=report.follows,
        **msgspec.structs.asdict(report.evidence),
    )
