"""The process that examines a store and its node. It prints each fact as one line of JSON as soon as it is known.

The parent process reads until its timeout and uses what was printed by then. An argument `-` stands for the text on
standard input: the URL of a server may contain a password, and the arguments of a process are visible to all users.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from chargehand.doctor import looks, sections, server

LOOKS: dict[str, Callable[..., Iterator[tuple[str, dict[str, Any]]]]] = {
    "nodes": looks.nodes,
    "store": looks.store,
    "server": server.store,
    "bundle": sections.sections,
}


def main() -> None:
    """Runs the examination that the arguments name, and prints what it finds."""
    what, *words = (sys.stdin.buffer.read().decode() if word == "-" else word for word in sys.argv[1:])
    for step, found in LOOKS[what](*words):
        tell(step, found)
    tell("", {})


def tell(step: str, found: dict[str, Any]) -> None:
    """Prints what was found, and the name of the next step."""
    text = json.dumps({"next": step, "found": found}, default=msgspec.to_builtins)
    rest = text.encode("utf-8", "replace") + b"\n"
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main()
