# pyright: basic, reportMissingImports=false
"""RQ: `rq worker-pool`, with a fork for each job (the default), or with SimpleWorker for throughput."""

import agent
from redis import Redis
from rq import Queue, Retry


def note(tag: str) -> None:
    agent.note(tag)


def hold(tag: str) -> None:
    agent.hold(tag)


def fragile(tag: str) -> None:
    agent.fragile(tag)


def setup() -> None:
    Redis.from_url(agent.URL).flushall()


def work(mode: str) -> None:
    simple = ["--worker-class", "rq.worker.SimpleWorker"] if mode == "throughput" else []
    agent.replace_by(
        "rq", "worker-pool", "--url", agent.URL, "--num-workers", str(agent.PROCESSES), "--quiet", *simple, "default",
    )  # fmt: skip


def connect():
    redis = Redis.from_url(agent.URL)
    queue = Queue(connection=redis)
    retry = Retry(max=agent.ATTEMPTS - 1)

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        name = f"rq_program.{kind}"
        if bulk:
            with redis.pipeline() as pipe:
                queue.enqueue_many(
                    [Queue.prepare_data(name, (tag,), retry=retry, result_ttl=0) for tag in tags], pipeline=pipe
                )
                pipe.execute()
            return
        for tag in tags:
            queue.enqueue(name, tag, retry=retry, result_ttl=0)

    def unfinished() -> int:
        return queue.count + queue.started_job_registry.get_job_count(cleanup=False)

    return enqueue, unfinished, lambda: queue.failed_job_registry.get_job_count(cleanup=False)
