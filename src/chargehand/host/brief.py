"""What a host must know of the node that it starts: a few facts, and the settings as they are sent to the node."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chargehand.errors import ConfigurationError
from chargehand.stores.beside import Beside, Files

if TYPE_CHECKING:
    from chargehand.settings.plan import NodePlan


class Brief(NamedTuple):
    """The node that a host starts. Not a msgspec struct: a process that only waits does not load msgspec."""

    store: Beside
    node: str
    """The name of the node."""
    crews: tuple[str, ...]
    stop_limit: float
    """Seconds that the workers may take to stop."""
    plan: bytes
    """The settings of the node as JSON, in one line."""


def brief_of(plan: "NodePlan") -> Brief:
    """Returns what a host must know of a node with these settings."""
    import msgspec

    from chargehand.stores.location import locate

    limit = plan.liveness.grace + 2 * plan.liveness.terminate
    crews = tuple(crew.name for crew in plan.crews)
    try:
        text = msgspec.json.encode(plan)
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"the settings contain {error.object!r}, which is not valid UTF-8") from None
    return Brief(locate(plan.store, plan.node), plan.node, crews, limit, text)


def to_bytes(brief: Brief) -> bytes:
    """Encodes a brief for another process."""
    facts = [str(brief.store.path), str(brief.store), brief.node, brief.crews, brief.stop_limit]
    return json.dumps(facts).encode() + b"\n" + brief.plan


def from_bytes(data: bytes) -> Brief:
    """Decodes what `to_bytes` has made."""
    facts, _, plan = data.partition(b"\n")
    path, shown, node, crews, limit = json.loads(facts)
    return Brief(Files(Path(path), shown), node, tuple(crews), limit, plan)
