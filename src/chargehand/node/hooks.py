"""The jobs that tell the application's hooks what has happened on this node; `model.hooks` decides."""

from collections.abc import Sequence

from chargehand import clock
from chargehand.ids import new_id
from chargehand.model import hooks
from chargehand.model.job import NewJob, Settlement
from chargehand.model.records import CrashReport
from chargehand.settings.plan import NodePlan


class HookJobs:
    """The jobs for the hooks of one plan."""

    def __init__(self, plan: NodePlan) -> None:
        self._hooks, self._node = plan.hooks, plan.node
        self._queues = {crew.name: crew.queue for crew in plan.crews}

    def failed(self, settlement: Settlement, label: str | None = None) -> NewJob | None:
        """Returns the job that tells of a job's final failure; None if this outcome is none, or no hook is called."""
        return hooks.failed(self._hooks, settlement, label, self._node, clock.now_ms())

    def all_failed(self, settlements: Sequence[Settlement]) -> list[NewJob]:
        """Returns the jobs that tell of the final failures among these outcomes."""
        return [job for each in settlements if (job := self.failed(each)) is not None]

    def crashed(self, report: CrashReport) -> tuple[NewJob, ...]:
        """Returns the job that tells of a worker's crash, if a hook is called for it."""
        queue = self._queues.get(report.crew)
        job = hooks.crashed(self._hooks, report, queue, self._node, clock.now_ms() - report.age_ms)
        return () if job is None else (job,)

    def given_up(self, worker: str, crew: str, why: str, left: int) -> tuple[NewJob, ...]:
        """Returns the job that tells that a worker was given up, if a hook is called for it. `left`: how many workers
        of its crew are not."""
        queue, now_ms = self._queues.get(crew), clock.now_ms()
        job = hooks.given_up(self._hooks, worker, why, queue, self._node, now_ms, left=left, job_id=new_id())
        return () if job is None else (job,)
