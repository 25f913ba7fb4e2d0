"""What a job can call while a worker performs it: one object for each attempt. Every worker loads this module, so it
imports nothing heavy."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chargehand import clock, codec, errors
from chargehand.handler import Job, check_key
from chargehand.worker import perform

if TYPE_CHECKING:
    from pathlib import Path

    from chargehand.model.job import NewJob
    from chargehand.worker.asking import Pages
    from chargehand.worker.main import Worker


class Context:
    """One attempt at a job: the context of the handler's Job, and what is sent with the outcome."""

    def __init__(self, worker: "Worker", body: dict[str, Any]) -> None:
        self.worker, self.body = worker, body
        self.id: str = body["id"]
        self.claim: tuple[str, int] = self.id, body["fence"]
        self.began = clock.monotonic()
        self.follow: list[dict[str, Any]] = []
        """The jobs that were enqueued, in the form that is sent to the node."""
        self.settled = False
        """Whether the job has ended in a transaction of the handler."""
        self.ended_flows: tuple[str, ...] = ()
        """The flows that ended in that transaction."""
        self.has_scratch = False

    @property
    def about(self) -> dict[str, Any]:
        """What names the attempt in a frame."""
        return {"id": self.id, "fence": self.body["fence"]}

    def job(self, takes: Any) -> Job[Any]:
        """Returns the job for the handler. Raises PayloadError if the payload is not of the type that it takes."""
        body = self.body
        return Job(
            id=self.id, queue=body["queue"], label=body.get("label"), attempt=body["attempts"] + 1,
            payload=codec.as_type(body["payload"], takes, f"the payload of job {self.id}"), crashes=body["crashes"],
            item=body.get("item"), flow=body.get("flow"), kept=body.get("kept"), meta=body.get("meta"),
            traceparent=body.get("traceparent"), context=self,
        )  # fmt: skip

    def progress(self, done: float | None, total: float | None, stage: str | None, detail: str | None) -> None:
        self.worker.report_progress(*self.claim, done, total, stage, detail)
        self.check_cancelled()

    def check_cancelled(self) -> None:
        """Raises Cancelled if the job was cancelled."""
        if self.is_cancelled():
            raise errors.Cancelled(f"job {self.id} was cancelled")

    def is_cancelled(self) -> bool:
        return self.worker.has_cancelled(*self.claim)

    # other jobs

    def enqueue(self, crew: Any, payload: Any, options: dict[str, Any]) -> str:
        (job_id,) = self._follow(crew, "job.enqueue()", [payload], options)
        return job_id

    def spawn(self, crew: Any, payloads: Iterable[Any], options: dict[str, Any]) -> list[str]:
        return self._follow(crew, "job.spawn()", check_key(payloads, options), options, child=True)

    def _follow(
        self, crew: Any, what: str, payloads: Iterable[Any], options: dict[str, Any], *, child: bool = False
    ) -> list[str]:
        """Adds jobs that are enqueued with the outcome. Returns their ids."""
        self.worker.not_detached(what, "return what is to be enqueued, or use the enqueue() of a crew")
        if self.settled:
            raise errors.ChargehandError(f"job.settle() has ended this job: call {what} inside its block, or before it")
        self._has_not_ended(what)
        import msgspec

        jobs = new_jobs(self.worker.plan["crews"], crew, payloads, with_flow(options, self.body.get("flow")))
        for job in jobs:
            plain = msgspec.to_builtins(job)
            if child:
                plain["child"] = True
            self.follow.append(plain)
        return [job.id for job in jobs]

    def results(self, crew: Any) -> "Pages":
        from chargehand.worker.asking import Pages

        return Pages(self, self.queue_of(crew))

    def queue_of(self, crew: Any) -> str:
        """Returns the queue of a crew, which may be given by its name. Raises UnknownCrew."""
        return known_crew(self.worker.plan["crews"], crew)["queue"] if isinstance(crew, str) else crew.plan.queue

    # files and checkpoints

    def keep(self, state: Any) -> None:
        self.worker.not_detached("job.keep()", "call it there")
        self._has_not_ended("job.keep()")
        self.worker.keeper.keep(self.claim, perform.kept_text(state))

    def folder(self) -> "Path":
        return self.worker.job_files().folder(self.body.get("flow"), self.id)

    def scratch(self) -> "Path":
        self.worker.not_detached("job.scratch", "pass its path to the processes that the job forks")
        self._has_not_ended("job.scratch")
        found = self.worker.job_files().scratch(self.id, self.body["fence"])
        self.has_scratch = True
        return found

    def remove_scratch(self) -> None:
        """Removes the files of this attempt."""
        if self.has_scratch:
            self.has_scratch = False
            self.worker.job_files().remove_scratch(self.id, self.body["fence"])

    # the end

    def _has_not_ended(self, what: str) -> None:
        """Raises ChargehandError if the attempt has ended: a thread or a task that outlives it would call in vain."""
        if not self.worker.holds(self.claim):
            raise errors.ChargehandError(
                f"job {self.id} has ended: {what} has no effect any more; perform must wait for its threads and tasks"
            )

    @contextmanager
    def settle(self, result: Any) -> Generator[Any]:
        with self.worker.settling(self, result) as tx:
            yield tx
        self.follow, self.settled = [], True

    def settled_frame(self) -> bytes:
        """Returns the frame that reports that the job has ended in a transaction of the handler."""
        return perform.settled_frame(self.about, self.ended_flows)


def with_flow(options: dict[str, Any], flow: str | None) -> dict[str, Any]:
    """Returns the options of a job that a job of this flow enqueues: it belongs to the same flow unless they say
    otherwise."""
    return options if flow is None or "flow" in options else {**options, "flow": flow}


def known_crew(crews: dict[str, Any], name: str) -> Any:
    """Returns the crew of this name. Raises UnknownCrew."""
    if name not in crews:
        raise errors.UnknownCrew(f"there is no crew {name!r}; there are: {', '.join(sorted(crews))}")
    return crews[name]


def new_jobs(crews: dict[str, Any], crew: Any, payloads: Iterable[Any], options: dict[str, Any]) -> "list[NewJob]":
    """Returns checked jobs for a crew, which may be given by its name among `crews`. Raises UnknownCrew."""
    if not isinstance(crew, str):
        if "key" in options:
            return [crew.new_job(payload, **options) for payload in payloads]
        return crew.new_jobs(payloads, **options)
    import msgspec

    from chargehand.ids import new_ids
    from chargehand.settings.plan import CrewPlan, new_job, with_payload

    plan = msgspec.convert(known_crew(crews, crew), CrewPlan)
    model = new_job(plan, "null", **options)
    texts = [codec.to_json(payload, "the payload") for payload in payloads]
    return [with_payload(model, each, text) for each, text in zip(new_ids(len(texts)), texts, strict=True)]
