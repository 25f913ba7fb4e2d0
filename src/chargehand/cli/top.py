"""`chargehand top`: workers, queues and failures, live in a terminal; once into a pipe."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich.console import Console
from rich.live import Live

from chargehand.cli import board, find, show
from chargehand.cli.board import Board
from chargehand.errors import EXIT_ERROR
from chargehand.host.service import LiveWatcher, Service
from chargehand.live.components import GONE
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.model.topic import DEFAULT, parse

REDRAW = 0.1
"""Seconds between two redraws, at least."""
TICK = 1.0
"""Seconds after which durations are redrawn."""
FAILURES = 5


def top(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show workers, queues and failures live; q or Ctrl+C exits. Into a pipe, or with --json, show them once.

    Exit status 1 if no node runs.
    """
    service = find.service(app, store)
    alive = sys.stdout.isatty() and sys.stdin.isatty() and not json
    try:
        seen, there = asyncio.run(_watch(service) if alive else _once(service))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    if json:
        show.json(seen.as_json())
    elif not alive:
        Console(file=sys.stdout, width=200, highlight=False).print(board.drawn(seen))
    if not alive and not there:
        raise typer.Exit(EXIT_ERROR)


async def _once(service: Service) -> tuple[Board, bool]:
    seen = Board(service.address)
    async with service.feed().watch(parse(DEFAULT)) as watcher:
        await _take(watcher, seen, 0.0)
        seen.failures = await asyncio.to_thread(_failures, service)
        runs = any(node["status"] != GONE for node in seen.nodes.values())
        return seen, watcher.node_there or runs


async def _watch(service: Service) -> tuple[Board, bool]:
    """Draws until q or Ctrl+C is pressed."""
    seen, screen = Board(service.address), Console(highlight=False)
    over, failed = asyncio.Event(), None
    async with service.feed().watch(parse(DEFAULT)) as watcher:

        def end() -> None:
            over.set()
            watcher.interrupt()

        with Live(console=screen, screen=True, auto_refresh=False) as live, _keys(end):
            while not over.is_set():
                await _take(watcher, seen, TICK)
                if seen.failed != failed:
                    failed, seen.failures = seen.failed, await asyncio.to_thread(_failures, service)
                live.update(board.drawn(seen, screen.height, screen.width), refresh=True)
                with suppress(TimeoutError):
                    async with asyncio.timeout(REDRAW):
                        await over.wait()
    return seen, True


async def _take(watcher: LiveWatcher, seen: Board, patience: float) -> None:
    """Takes all new events."""
    anew, events = await watcher.next(patience)
    while anew or events:
        if anew:
            seen.clear()
        for event, topic in events:
            seen.add(event.read(topic))
        anew, events = await watcher.next(0.0)


def _failures(service: Service) -> list[dict[str, Any]]:
    found = service.jobs(JobFilter(state=State.FAILED, limit=FAILURES))
    names = ("id", "queue", "label", "reason", "error", "cause", "finished_ms")
    return [{name: getattr(job, name) for name in names} for job in found]


@contextmanager
def _keys(end: Callable[[], None]) -> Generator[None]:
    """Calls `end` when q is pressed during the block."""
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        if b"q" in os.read(descriptor, 100).lower():
            end()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
