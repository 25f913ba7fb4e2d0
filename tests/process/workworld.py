"""What the tests of discovery, cancel and limits ask about the application of `discovery_handlers`."""

from typing import Any

from world import World

from chargehand import Chargehand, JobFilter, JobRecord


def application(world: World) -> dict[str, str]:
    """The environment that these handlers need."""
    return {"APPLICATION": str(world.folder)}


def jobs_of(hand: Chargehand, item: str) -> list[JobRecord]:
    """An item's jobs, newest first."""
    return [job for job in hand.jobs(JobFilter(text=item, limit=1000)) if job.item == item]


def workers_of(hand: Chargehand) -> list[dict[str, Any]]:
    return (hand.status() or {"workers": []})["workers"]
