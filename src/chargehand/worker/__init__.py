"""The worker process. Every worker loads this package: nothing heavy is imported here."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Give a node of version 0.1.0, which runs on while the package is upgraded, the entry point that it asks for."""
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from chargehand.worker.main import main

    globals()["main"] = main  # `from chargehand.worker import main` would otherwise find the module of that name
    return main
