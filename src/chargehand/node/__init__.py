"""The node process: it supervises workers, claims and settles jobs, and serves those who call it."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Give a host of version 0.1.0, which runs on while the package is upgraded, the entry point that it asks for."""
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from chargehand.node.main import main

    globals()["main"] = main  # `from chargehand.node import main` would otherwise find the module of that name
    return main
