"""`chargehand top`: everything at a glance, live in the terminal; elsewhere once."""

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

from chargehand.app import Chargehand
from chargehand.cli import board, find, show
from chargehand.cli.board import Board
from chargehand.errors import EXIT_ERROR
from chargehand.host.feed import Watcher
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.model.topic import DEFAULT, parse

REDRAW = 0.1
"""Seconds between two pictures, at least."""
TICK = 1.0
"""Seconds after which what counts time is drawn anew."""
FAILURES = 5


def top(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Show workers, queues and failures live; q or Ctrl+C ends it. Into a pipe, or with --json: once.

    Exit status 1 if no node runs.
    """
    hand = find.chargehand(app, store)
    alive = sys.stdout.isatty() and sys.stdin.isatty() and not json
    try:
        seen, there = asyncio.run(_watch(hand) if alive else _once(hand))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    if json:
        show.json(seen.as_json())
    elif not alive:
        Console(file=sys.stdout, width=200, highlight=False).print(board.drawn(seen))
    if not alive and not there:
        raise typer.Exit(EXIT_ERROR)


async def _once(hand: Chargehand) -> tuple[Board, bool]:
    seen = Board(str(hand.location))
    async with hand.feed().watch(parse(DEFAULT)) as watcher:
        await _take(watcher, seen, 0.0)
        seen.failures = await asyncio.to_thread(_failures, hand)
        return seen, watcher.node_there


async def _watch(hand: Chargehand) -> tuple[Board, bool]:
    """Draw until somebody ends it."""
    seen, screen = Board(str(hand.location)), Console(highlight=False)
    over, failed = asyncio.Event(), None
    async with hand.feed().watch(parse(DEFAULT)) as watcher:

        def end() -> None:
            over.set()
            watcher.news.set()  # whoever waits for news looks up

        with Live(console=screen, screen=True, auto_refresh=False) as live, _keys(end):
            while not over.is_set():
                await _take(watcher, seen, TICK)
                if seen.failed != failed:
                    failed, seen.failures = seen.failed, await asyncio.to_thread(_failures, hand)
                live.update(board.drawn(seen, screen.height), refresh=True)
                with suppress(TimeoutError):
                    async with asyncio.timeout(REDRAW):
                        await over.wait()
    return seen, True


async def _take(watcher: Watcher, seen: Board, patience: float) -> None:
    """Take what is new, all of it."""
    anew, told = await watcher.next(patience)
    while anew or told:
        if anew:
            seen.clear()
        for event, topic in told:
            seen.hear(event.read(topic))
        anew, told = await watcher.next(0.0)


def _failures(hand: Chargehand) -> list[dict[str, Any]]:
    found = hand.jobs(JobFilter(state=State.FAILED, limit=FAILURES))
    names = ("id", "queue", "label", "reason", "error", "finished_ms")
    return [{name: getattr(job, name) for name in names} for job in found]


@contextmanager
def _keys(end: Callable[[], None]) -> Generator[None]:
    """Hear every key at once for the length of the block; q ends."""
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
