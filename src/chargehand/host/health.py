"""The health of components as the store has it, checked against the processes of this machine."""

from typing import Any

import msgspec

from chargehand.model.health import Member, is_healthy, shown_status
from chargehand.model.records import HealthRow
from chargehand.processes import proc


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the node (`app`) or of a worker: `healthy` only with a recent heartbeat, a pid only if it runs."""

    component: str
    node: str
    crew: str | None
    status: str
    flags: tuple[str, ...]
    reason: str | None
    text: str | None
    pid: int | None
    incarnation: str | None
    current_job: str | None
    last_heartbeat_ms: int | None
    restart_count: int
    restarts_total: int = 0
    last_restart_ms: int | None
    exit_code: int | None
    signal: int | None
    created_at_ms: int
    metadata: dict[str, Any]
    is_healthy: bool


def live_pid(row: HealthRow) -> int | None:
    """Returns the pid of a row if that process still runs; a reused pid does not count.

    Of a process of another machine or pid namespace, only its node knows whether it runs.
    """
    if row.pid is None or row.pid_start is None or not row.node_lives:
        return None
    here = row.boot is None or (row.boot, row.pid_namespace) == (proc.boot_id(), proc.pid_namespace())
    return row.pid if not here or proc.alive(row.pid, row.pid_start) else None


def component_of(row: HealthRow) -> Component:
    """Returns the component that a row describes."""
    pid = live_pid(row)
    metadata: dict[str, Any] = msgspec.json.decode(row.metadata, type=dict[str, Any])
    status = shown_status(row.status, row.flags, row.age_ms if pid is not None else None)
    if not row.node_lives:
        status = "unknown"
        metadata |= {"text": f"its node {row.node} is gone", "will_work": False}
        row = msgspec.structs.replace(row, current_job=None)  # others have it, or will
    own: dict[str, Any] = {name: getattr(row, name) for name in Component.__struct_fields__ if hasattr(row, name)}
    own |= {"status": status, "pid": pid, "metadata": metadata}
    own |= {"crew": metadata.get("crew"), "text": metadata.get("text")}
    own["restarts_total"] = metadata.get("restarts_total", row.restart_count)
    own["is_healthy"] = pid is not None and is_healthy(row.status, row.flags, row.age_ms)
    return Component(**own)


def member_of_component(shown: Component) -> Member:
    """Returns a worker as the verdict on its queue needs it."""
    return Member(str(shown.crew), shown.status, shown.text, bool(shown.metadata.get("will_work")))
