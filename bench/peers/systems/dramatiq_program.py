# pyright: basic, reportMissingImports=false
"""Dramatiq with Redis: two processes with eight threads each (the default)."""

import agent
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from redis import Redis

broker = RedisBroker(url=agent.URL)
dramatiq.set_broker(broker)
options = {"max_retries": agent.ATTEMPTS - 1, "min_backoff": 1, "max_backoff": 10}


def _actor(kind):
    @dramatiq.actor(actor_name=kind, **options)
    def perform(tag):
        agent.JOBS[kind](tag)

    return perform


actors = {kind: _actor(kind) for kind in agent.JOBS}


def setup() -> None:
    Redis.from_url(agent.URL).flushall()


def work(mode: str) -> None:
    agent.replace_by("dramatiq", "dramatiq_program", "--processes", str(agent.PROCESSES), "--path", agent.FOLDER)


def connect():
    redis = Redis.from_url(agent.URL)

    def enqueue(kind: str, tags: list[str], bulk: bool) -> None:
        for tag in tags:
            actors[kind].send(tag)

    def unfinished() -> int:
        held = sum(redis.scard(key) for key in redis.scan_iter("dramatiq:__acks__.*"))
        return redis.llen("dramatiq:default") + redis.llen("dramatiq:default.DQ") + held

    return enqueue, unfinished, lambda: redis.zcard("dramatiq:default.XQ")
