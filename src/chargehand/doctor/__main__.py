"""The process that looks at a store and its node: it says each thing as soon as it knows it.

Nothing here is waited for: whoever started this process listens for so long, and takes what was said by then.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from chargehand.doctor import looks, sections

LOOKS: dict[str, Callable[..., Iterator[tuple[str, dict[str, Any]]]]] = {
    "nodes": looks.nodes,
    "store": looks.store,
    "bundle": sections.sections,
}


def main() -> None:
    """The whole life of the process: look, tell, end. What is asked for comes as arguments."""
    what, *words = sys.argv[1:]
    for step, found in LOOKS[what](*words):
        tell(step, found)
    tell("", {})


def tell(step: str, found: dict[str, Any]) -> None:
    """What was found, and what is looked at next."""
    text = json.dumps({"next": step, "found": found}, default=msgspec.to_builtins)
    rest = text.encode("utf-8", "replace") + b"\n"
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main()
