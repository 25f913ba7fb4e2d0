# pyright: basic, reportMissingImports=false
"""Procrastinate: two processes of `procrastinate worker`."""

import agent
import procrastinate

connector = procrastinate.PsycopgConnector(conninfo=agent.URL)
app = procrastinate.App(connector=connector)
retry = procrastinate.RetryStrategy(max_attempts=agent.ATTEMPTS - 1)


def _task(kind):
    @app.task(name=kind, retry=retry)
    def perform(tag):
        agent.JOBS[kind](tag)

    return perform


tasks = {kind: _task(kind) for kind in agent.JOBS}


def setup() -> None:
    with app.with_connector(procrastinate.SyncPsycopgConnector(conninfo=agent.URL)).open() as opened:
        opened.schema_manager.apply_schema()


def work(mode: str) -> None:
    limit = "10" if mode == "throughput" else "1"
    agent.replace_by(
        "procrastinate", "--app", "procrastinate_program.app", "worker", "--concurrency", limit,
    )  # fmt: skip


def connect():
    app.open()
    sync = app.connector.get_sync_connector()

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        if bulk:
            tasks[kind].batch_defer(*({"tag": tag} for tag in tags))
            return
        for tag in tags:
            tasks[kind].defer(tag=tag)

    def count(*statuses: str) -> int:
        return sync.execute_query_one(
            "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status::text = ANY (%(statuses)s)",
            statuses=list(statuses),
        )["jobs"]

    return enqueue, lambda: count("todo", "doing"), lambda: count("failed")
