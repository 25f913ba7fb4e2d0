"""Handles a dead worker: kills what it started, reads what it still sent, releases its job, and reports the death.

Nothing that a worker started may run when its job is released and its place is filled.
"""

import signal
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from chargehand import clock, codec, log
from chargehand.ids import new_id
from chargehand.model.fleet.death import Death, Evidence, last_outcome
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.lifecycle import Exited, Report
from chargehand.model.job import Claim
from chargehand.model.ledger import Ledger
from chargehand.model.records import CrashReport
from chargehand.node.handle import Handle
from chargehand.node.loop import Loop
from chargehand.node.output import KEPT
from chargehand.processes import proc
from chargehand.processes.child import kill_group, kill_orphans
from chargehand.processes.record import ProcessRecord

LONGEST_DYING = 30.0
"""Most seconds that a process takes to exit after the kernel killed it."""
LONGEST_LOOK = 1.0
"""Most seconds between two checks whether what a dead worker started is gone."""


class Reaper:
    """Cleans up after dead workers, and removes them from the supervisor's `handles`."""

    def __init__(
        self,
        loop: Loop,
        fleet: Fleet,
        ledger: Ledger,
        lives: ProcessRecord,
        handles: dict[str, Handle],
        dismiss: Callable[[Handle], None],
        tell: Callable[[Exited], None],
        left: Callable[[Sequence[Claim]], None],
    ) -> None:
        """`dismiss` is called when a worker has exited and what it sent is read: it takes back what was not begun.
        `left` is called with the claims that a dead worker held."""
        self._left = left
        self._loop, self._fleet, self._ledger, self._lives = loop, fleet, ledger, lives
        self._handles, self._dismiss, self._tell = handles, dismiss, tell
        self._oom_kills = proc.oom_kills()
        """The kernel's count of out-of-memory kills that are accounted for."""
        self._oom_before: deque[tuple[float, int]] = deque()
        self.dying: dict[int, Handle] = {}
        """Dead workers, by pid, that left processes which still run."""

    def beat(self) -> None:
        """Account for old out-of-memory kills: a process that the kernel killed long ago has exited by now."""
        now = clock.monotonic()
        self._oom_before.append((now, proc.oom_kills()))
        while self._oom_before and self._oom_before[0][0] < now - LONGEST_DYING:
            self._oom_kills = max(self._oom_kills, self._oom_before.popleft()[1])

    def next_due(self) -> list[float]:
        """Returns when to check again, for each dead worker."""
        return [handle.look_at for handle in self.dying.values()]

    def check_again(self, now: float) -> None:
        """Check again whether what dead workers left is gone."""
        for handle in [handle for handle in self.dying.values() if handle.look_at <= now]:
            self._clean_up(handle)

    def on_exit(self, handle: Handle) -> None:
        """Handle the exit of a worker: read what it still sent, then end what it left running."""
        self._loop.remove(handle.child.pidfd)
        self._ledger.dismiss(handle.component)
        handle.drain()
        self._dismiss(handle)
        kill_group(handle.child)
        handle.exit = handle.child.exit()
        self.dying[handle.child.pid] = handle
        self._clean_up(handle)

    def _clean_up(self, handle: Handle) -> None:
        others = [other.child for other in self.dying.values() if other is not handle]
        try:
            left = bool(kill_orphans([other.child.pid for other in self._handles.values()], others))
        except OSError as error:  # no descriptor is free to look with: check again later
            log.warning("cannot list what a dead worker left running", component=handle.component, why=error.strerror)
            left = True
        if left:
            handle.look_at = clock.monotonic() + handle.patience
            handle.patience = min(2 * handle.patience, LONGEST_LOOK)
            return
        del self.dying[handle.child.pid]
        del self._handles[handle.component]
        self._lives.drop(handle.child)
        handle.strays.forget()
        self._report(handle)
        handle.close()

    def _report(self, handle: Handle) -> None:
        """Release the job and report the death: nothing that the worker started is left."""
        if handle.output is not None:
            handle.output.close()  # the last lines are read while the job that they belong to is known
        place = self._fleet.places[handle.component]
        code, number = handle.exit or (None, None)
        death = Death(
            exit_code=code,
            signal=number,
            said=codec.readable(handle.said.why) if handle.said else None,
            broken=handle.broken,
            had_job=handle.component in self._ledger.held,
            oom=self._was_out_of_memory(handle, number),
        )
        stacks = handle.stacks()
        who = f"{handle.who}, which held {place.doing}," if place.others else handle.who
        outcome = last_outcome(death, place.verdict, who, asked=place.asked, blocked=place.blocked, stacks=stacks)
        now = clock.monotonic()
        claims = self._ledger.gone(handle.component, outcome, now, handle.child.pid, place.blamed)
        if claims:
            self._left(claims)
        job, item = (claims[0].id, claims[0].item) if claims else (None, None)
        log.info(
            "worker exited", event=log.Event.WORKER_EXITED, component=handle.component, pid=handle.child.pid,
            exit_code=code, signal=number, job=job, item=item,
            **({"jobs": len(claims)} if len(claims) > 1 else {}),
        )  # fmt: skip
        lines = handle.output.lines if handle.output is not None else ()
        evidence = Evidence(
            incarnation=handle.child.mark,
            pid=handle.child.pid,
            exit_code=code,
            signal=number,
            job=job,
            memory=handle.health.memory if handle.health else None,
            uptime_ms=None if place.ready_at is None else int((now - place.ready_at) * 1000),
            stacks=stacks,
            lines=tuple(f"{line.level:7} {text}" for line in lines for text in line.lines)[-KEPT:],
            frames=tuple(handle.bad),
        )
        done = self._ledger.pools[handle.crew].done
        self._tell(Exited(component=handle.component, death=death, crew_done=done, evidence=evidence))

    def _was_out_of_memory(self, handle: Handle, number: int | None) -> bool:
        if number != signal.SIGKILL or handle.killed:
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
