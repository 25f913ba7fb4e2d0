"""Moves a store while no node uses it or the target: takes both node locks, and asks a server for its nodes."""

from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager

from chargehand import clock
from chargehand.errors import StoreError
from chargehand.host import nodelock, restart_plan
from chargehand.stores import open_reader, open_writer
from chargehand.stores.location import Location
from chargehand.stores.moving import Move, Moved, Reader, Report
from chargehand.stores.refusal import refusals


def move(source: Location, target: Location, report: Report, *, start_over: bool = False) -> Moved:
    """Moves everything from a store into an empty one, or continues an interrupted move, and compares both.

    Raises StoreError while a node uses one of them, and for a target with other data. The source is never changed.
    """
    if str(source) == str(target):
        raise StoreError(f"{source} is named as source and as target: name another target")
    if not source.exists():
        raise StoreError(f"there is no store at {source}")
    with ExitStack() as stack:
        stack.enter_context(_node_lock(source))
        original = stack.enter_context(closing(open_reader(source)))
        _check_nodes(original)
        stack.enter_context(_node_lock(target))
        writer = stack.enter_context(closing(open_writer(target)))
        copy = stack.enter_context(closing(open_reader(target, target=True)))
        _check_nodes(copy)
        return Move(original, writer, copy, report).run(start_over=start_over)


@contextmanager
def _node_lock(store: Location) -> Generator[None]:
    """Holds the locks of all nodes of this machine for the block. Raises StoreError if a node has one, or if a host is
    about to start one."""
    with ExitStack() as stack:
        for each in (store, *store.of_other_nodes):
            stack.enter_context(_one_lock(each))
        yield


@contextmanager
def _one_lock(store: Location) -> Generator[None]:
    with refusals(store.node):
        plan = restart_plan.announced(store)
        lock = None if plan is not None else nodelock.take(store)
    if lock is None:
        if plan is not None:
            why = f"its host (pid {plan.host}) starts a node: {plan.in_words(clock.now_ms())}"
        else:
            why = f"a node (pid {(nodelock.holder(store) or {}).get('pid', 'unknown')}) uses it"
        raise StoreError(f"{store} cannot be moved while it is in use: {why}; stop everything that uses the store")
    try:
        yield
    finally:
        nodelock.release(lock)


def _check_nodes(store: Reader) -> None:
    if names := store.running():
        raise StoreError(
            f"{store.shown} cannot be moved while it is in use: nodes run on it ({', '.join(names)}); stop everything "
            "that uses the store"
        )
