# pyright: basic, reportMissingImports=false
"""Celery with Redis: `celery worker --pool prefork`."""

import os

import agent
from celery import Celery

app = Celery("celery_program", broker=agent.URL)
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True
if os.environ.get(agent.MODE) == "throughput":
    app.conf.worker_prefetch_multiplier = 128  # documented for many short tasks
else:
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True
    app.conf.worker_prefetch_multiplier = 1


def _task(kind):
    @app.task(name=kind, bind=True)
    def perform(self, tag):
        _attempt(self, kind, tag)

    return perform


def _attempt(task, kind, tag):
    try:
        agent.JOBS[kind](tag)
    except RuntimeError as error:
        if task.request.retries + 1 >= agent.ATTEMPTS:
            agent.say("lost", tag)
        raise task.retry(exc=error, countdown=0, max_retries=agent.ATTEMPTS - 1) from error


tasks = {kind: _task(kind) for kind in agent.JOBS}


def setup() -> None:
    app.connection_for_write().default_channel.client.flushall()


def work(mode: str) -> None:
    agent.replace_by(
        "celery", "--app", "celery_program", "worker", "--pool", "prefork", "--concurrency", str(agent.PROCESSES),
        "--loglevel", "error", "--without-gossip", "--without-mingle",
    )  # fmt: skip


def connect():
    redis = app.connection_for_write().default_channel.client

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for tag in tags:
                tasks[kind].apply_async((tag,), producer=producer)

    return enqueue, lambda: redis.llen("celery") + redis.hlen("unacked"), agent.lost
