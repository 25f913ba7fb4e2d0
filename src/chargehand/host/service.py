"""What can be asked of a Chargehand service, wherever it runs: the interface of `Operations` and of the HTTP client.

Commands are written against it, so that each works on a store of this machine and on a server elsewhere.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from chargehand.host.readings import Failures
from chargehand.host.restart_plan import RestartPlan
from chargehand.live.bodies import NodeBody
from chargehand.live.components import Component
from chargehand.model.access import ApiKey, Scope
from chargehand.model.bulk import BulkDone, BulkPlace, BulkVerb
from chargehand.model.fleet.orders import Answer
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.flows import FlowFilter, FlowRecord, FlowStage, Relations
from chargehand.model.health import Findings
from chargehand.model.job import Attempt, Enqueued, JobRecord, NewJob
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    JobFilter,
    JobsFound,
    Pause,
    Recurrence,
    SearchPlace,
    Snapshot,
    Sort,
    Tally,
)
from chargehand.model.topic import Patterns


class LiveEvent(Protocol):
    """An event that a watcher received."""

    def read(self, topic: str) -> dict[str, Any]:
        """Returns the event as plain data."""
        ...


class LiveWatcher(Protocol):
    """Receives the events of one subscription."""

    @property
    def node_there(self) -> bool:
        """Whether the events come from a node; otherwise they are read from the store."""
        ...

    async def next(self, timeout: float | None = None) -> tuple[bool, Sequence[tuple[LiveEvent, str]]]:
        """Waits for events. Returns whether all earlier state is void, and the events with their topics."""
        ...

    def interrupt(self) -> None:
        """Makes a waiting `next` return."""
        ...


class LiveFeed(Protocol):
    """The live state of a service, for the running event loop."""

    def watch(self, patterns: Patterns) -> AbstractAsyncContextManager[LiveWatcher]:
        """Subscribes for the length of the block; the full state comes first."""
        ...


class Service(Protocol):
    """Operations on workers and jobs, and questions about them."""

    @property
    def address(self) -> str:
        """The path of the store, or the URL of the server."""
        ...

    # workers

    def start(self, scope: str | None = None) -> list[Answer]:
        """Starts stopped workers: all, those of a crew, or one (`worker:crew:0`)."""
        ...

    def stop(self, scope: str | None = None) -> list[Answer]:
        """Stops workers within the grace period, until they are started or the node restarts."""
        ...

    def drain(self, scope: str | None = None, *, end: bool = False) -> list[Answer]:
        """Stops workers after their current jobs, without a time limit; with `end`, a node (`node/*`) ends then."""
        ...

    def restart(self, scope: str | None = None) -> list[Answer]:
        """Replaces workers within the grace period, including those that were given up."""
        ...

    def reset(self, scope: str | None = None) -> list[Answer]:
        """Clears crash histories, and starts workers that were given up."""
        ...

    def scale(self, crew: str, count: int) -> list[Answer]:
        """Changes the number of workers of a crew."""
        ...

    def pause(
        self, scope: str | None = None, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Answer]:
        """Stops the assignment of new jobs to all workers, to those of a crew, or to one."""
        ...

    def resume(self, scope: str | None = None) -> list[Answer]:
        """Clears a pause."""
        ...

    def wake(self, crew: str) -> None:
        """Makes a discovering crew look for work at once."""
        ...

    def stack(self, worker: str) -> WorkerStacks:
        """Returns what a worker (`worker:crew:0`) is doing now: the Python stacks of its threads."""
        ...

    def status(self) -> dict[str, Any] | None:
        """Returns the status of the node of this machine and its workers; None if none answers."""
        ...

    def nodes(self) -> list[NodeBody]:
        """Returns every node that shares the store, with its crews, and those that are gone."""
        ...

    def health(self) -> Sequence[Component]:
        """Returns the nodes (`app`) and the workers of all nodes, as the store has them."""
        ...

    def verdict(self) -> Findings:
        """Returns the state of the whole system (healthy, degraded or error) with reasons, from the store."""
        ...

    def silent_node(self) -> dict[str, Any] | None:
        """Returns what is known of a node that serves the store; asked when none answers."""
        ...

    def next_node(self) -> RestartPlan | None:
        """Returns the plan of a host that waits to start the next node; None if there is none."""
        ...

    def history(self, since_ms: int = 0, limit: int = 1000) -> list[Snapshot]:
        """Returns the snapshots of health from `since_ms` on, oldest first."""
        ...

    def known_crews(self) -> list[CrewRow]:
        """Returns the crews that a node has registered in the store."""
        ...

    def pauses(self) -> list[Pause]:
        """Returns the pauses in effect."""
        ...

    def crash(self, crash_id: str) -> CrashRecord:
        """Returns one crash report. Raises CrashNotFound."""
        ...

    def crashes(self, which: CrashFilter | None = None) -> list[CrashRecord]:
        """Returns crash reports, newest first."""
        ...

    def logs(
        self, scope: str | None = None, *, job: str | None = None, count: int = 100, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yields the last log lines of the node, a crew, a worker or a job; with `follow`, new ones as they come."""
        ...

    # jobs

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueues checked jobs in one transaction; they are durable when it returns."""
        ...

    def cancel(self, *ids: str) -> list[Answer]:
        """Cancels jobs; running ones are asked to stop."""
        ...

    def retry(self, *ids: str) -> list[Answer]:
        """Queues failed or cancelled jobs again, with cleared counters. Raises Conflict if a unique key is taken."""
        ...

    def delete(self, *ids: str) -> list[Answer]:
        """Deletes finished jobs. Jobs that are queued or running stay, and the answers say so."""
        ...

    def clear(self, which: JobFilter) -> tuple[int, bool]:
        """Deletes finished jobs that match. Returns how many, and whether there may be more."""
        ...

    def release(self, job_id: str, claim: str) -> bool:
        """Ends a claim by hand. Returns False if the job has another claim, or none."""
        ...

    def job(self, job_id: str) -> JobRecord:
        """Returns one job, by its id or the end of it (8 characters or more). Raises JobNotFound, AmbiguousId."""
        ...

    def jobs(self, which: JobFilter) -> list[JobRecord]:
        """Returns a page of jobs, newest first."""
        ...

    def shown(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """Returns jobs as readers are shown them: without the values of the fields that their crews hide."""
        ...

    def search(self, which: JobFilter, sort: Sort = Sort.NEWEST, after: SearchPlace | None = None) -> JobsFound:
        """Returns a page of jobs in this order; if time runs out, it says how far the search came."""
        ...

    def tally(self, which: JobFilter) -> Tally:
        """Returns how many jobs match, by state, as far as it is known within a second."""
        ...

    def failures(self, which: JobFilter) -> Failures:
        """Returns the failed jobs that match, grouped by their causes."""
        ...

    def change(self, verb: BulkVerb, which: JobFilter, after: BulkPlace | None = None) -> BulkDone:
        """Retries, cancels or deletes jobs that match, or a part of them; `after` is `next` of the part before."""
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """Returns the attempts of a job, oldest first."""
        ...

    def counts(self) -> list[Counts]:
        """Returns the number of jobs in each state, for each queue."""
        ...

    def claims(self) -> list[ClaimRow]:
        """Returns the claims, oldest first."""
        ...

    def recurrences(self) -> Sequence[Recurrence]:
        """Returns the recurring jobs, by name."""
        ...

    def run_recurring(self, name: str) -> str:
        """Enqueues a recurring job now, besides its schedule. Returns the id of the job. Raises RecurringNotFound."""
        ...

    def pause_recurring(self, name: str, reason: str | None = None) -> None:
        """Makes a recurring job skip its times until it is resumed. Raises RecurringNotFound."""
        ...

    def resume_recurring(self, name: str) -> bool:
        """Ends the pause of a recurring job; returns whether it was paused. Raises RecurringNotFound."""
        ...

    def why_waiting(self, queue: str) -> str | None:
        """Returns why no worker takes the jobs of a queue; None if one will."""
        ...

    def await_end(self, job_id: str, until: float | None) -> None:
        """Returns when the job may have finished, at the latest at `until` (monotonic clock); early if unsure."""
        ...

    def relations(self, job_id: str) -> Relations:
        """Returns the jobs that a job waits for, that wait for it, and that it spawned: the first 100 of each."""
        ...

    # flows

    def flow(self, flow_id: str) -> FlowRecord:
        """Returns one flow. Raises FlowNotFound."""
        ...

    def flows(self, which: FlowFilter) -> list[FlowRecord]:
        """Returns a page of flows, newest first."""
        ...

    def stages(self, flow_id: str) -> list[FlowStage]:
        """Returns the jobs of a flow by queue, in the order in which the queues began."""
        ...

    def cancel_flow(self, flow_id: str) -> Answer:
        """Cancels every job of a flow; running ones are asked to stop. Raises FlowNotFound."""
        ...

    def retry_flow(self, flow_id: str) -> Answer:
        """Queues the failed and cancelled jobs of a flow again. Raises FlowNotFound."""
        ...

    def delete_flow(self, flow_id: str) -> Answer:
        """Deletes a flow that has ended, with its jobs. Raises FlowNotFound, and Conflict if it has not ended."""
        ...

    # live state

    def feed(self) -> LiveFeed:
        """Returns the live state, for the running event loop."""
        ...

    def subscribe(self, *topics: str) -> Generator[dict[str, Any]]:
        """Yields events of these topics: the full state first, then changes."""
        ...

    # keys

    def make_key(self, name: str, scopes: Sequence[Scope], *, seconds: float | None = None) -> tuple[str, ApiKey]:
        """Creates an API key. Returns its secret, which is not stored, and what the store keeps of it."""
        ...

    def revoke_key(self, name: str) -> None:
        """Revokes an API key by its name or id."""
        ...

    def api_keys(self) -> list[ApiKey]:
        """Returns every API key, oldest first."""
        ...

    def token(self) -> str:
        """Returns the token. Raises ConfigurationError if there is none."""
        ...

    def dashboard(self) -> str:
        """Returns the address of the dashboard, with the token as its fragment while no key exists."""
        ...
