"""The names of workers where several nodes have workers of the same name: `node/crew:index`. Pure.

A component (`worker:tag:0`, `app`) names a worker within its node. The names of crews contain no slash, those of nodes
may: the last slash of an address separates them.
"""

from collections.abc import Iterable

from chargehand.errors import ConfigurationError
from chargehand.model.health import APP

Named = tuple[str, str]
"""The name of a node, and a component of it."""


def written(node: str, component: str) -> str:
    """Returns the address of a worker, or of the node itself (`node/app`)."""
    return f"{node}/{component.removeprefix('worker:')}"


def component_of(text: str) -> str:
    """Returns the component that a person means by `worker:tag:0`, `tag:0` or `app`."""
    return text if text == APP or text.startswith("worker:") else f"worker:{text}"


def split(text: str) -> tuple[str | None, str]:
    """Returns the node that an address names, or None, and the rest of the text."""
    node, slash, rest = text.rpartition("/")
    return (node if slash else None), rest


def meant(text: str, living: Iterable[Named], gone: Iterable[Named] = ()) -> Named | None:
    """Returns the component that a text means; None if there is none. A node that lives goes before one that is gone.

    Raises ConfigurationError if a text without a node means workers of several nodes that live. `app` without a node
    means the first one.
    """
    node, rest = split(text)
    component = component_of(rest)
    alive, dead = (
        [each for each in known if each[1] == component and node in (None, each[0])] for known in (living, gone)
    )
    if len(alive) > 1 and component != APP:
        names = ", ".join(written(*each) for each in sorted(alive))
        raise ConfigurationError(f"several nodes have a worker {rest!r}: name one of {names}")
    return next(iter((*alive, *dead)), None)
