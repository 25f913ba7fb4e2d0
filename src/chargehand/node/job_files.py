"""Removes the folders of flows and jobs that no longer exist, and of attempts that have ended, in a thread of its own.

A worker removes the folder of its attempt itself; this thread does it for workers that have died.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue

from chargehand import clock, log
from chargehand.errors import ChargehandError
from chargehand.model.job import Claim
from chargehand.store import Store
from chargehand.system.job_files import (
    FLOWS,
    JOBS,
    SCRATCH,
    attempt_name,
    mark,
    marked,
    name_of,
    names,
    owner_of,
    remove_owned,
)

SWEEP_EVERY = 60.0
PAUSE, REST = 1.0, 20
"""The folders are not swept more often than every PAUSE seconds, and after REST times the duration of the last time."""
AT_ONCE = 500
"""Flows and jobs that the store is asked for at once."""
MOST_CLAIMS = 1_000_000


class JobFilesThread(threading.Thread):
    """Sweeps the folders when it is told to, and every SWEEP_EVERY seconds."""

    def __init__(self, root: str, open_store: Callable[[], Store], owner: str | None = None) -> None:
        """`owner` is the name of the store among those that may have the same root."""
        super().__init__(name="files", daemon=True)
        self._root, self._open, self._owner = root, open_store, owner
        self._inbox: SimpleQueue[tuple[str, ...] | None] = SimpleQueue()
        self._asked = threading.Event()
        """A sweep was asked for that has not begun."""

    def left(self, claims: Iterable[Claim]) -> None:
        """Removes the folders of attempts whose worker has died."""
        self._inbox.put(tuple(attempt_name(claim.id, claim.number) for claim in claims))

    def sweep_now(self) -> None:
        """Sweeps the folders soon: jobs were deleted, or attempts may have ended whose folders nobody has removed."""
        if not self._asked.is_set():
            self._asked.set()
            self._inbox.put(())

    def stop(self, patience: float) -> None:
        """Ends the thread after what it was asked for, and waits so many seconds for it."""
        self._inbox.put(None)
        if self.is_alive():
            self.join(patience)

    def run(self) -> None:
        sweep_at, not_before = clock.monotonic() + SWEEP_EVERY, 0.0
        while True:
            try:
                left = self._inbox.get(timeout=max(0.0, sweep_at - clock.monotonic()))
            except Empty:
                left = ()
            if left is None:
                return
            began = clock.monotonic()
            if not left and began < not_before:
                sweep_at = not_before
                continue
            if not left:
                self._asked.clear()
            self._remove(left)
            if not left:
                now = clock.monotonic()
                sweep_at, not_before = now + SWEEP_EVERY, now + max(PAUSE, REST * (now - began))

    def _remove(self, left: Sequence[str]) -> None:
        """Removes the folders of these attempts; if there are none, all that belong to nothing."""
        try:
            if left:
                remove_owned(self._root, self._owner, SCRATCH, left, _report)
            else:
                sweep(self._root, self._open, self._owner)
        except ChargehandError as error:
            log.warning("files of jobs that no longer exist could not be removed yet", why=error)
        except Exception:
            log.error("files of jobs could not be removed: unexpected error", trace=True)


def sweep(root: str, open_store: Callable[[], Store], owner: str | None = None) -> int:
    """Removes the folders that belong to nothing in the store. Returns how many.

    With an `owner`, only those that are known to belong to this store; those that do, and are not known to, become so.
    """
    # The folders are listed before the store is read: what is made meanwhile is left alone.
    found = {kind: names(root, kind) for kind in (FLOWS, JOBS, SCRATCH)}
    own = {kind: found[kind] if owner is None else marked(root, owner, kind) for kind in found}
    if not any(found.values()) and not any(own.values()):
        return 0
    asked = {kind: sorted({*found[kind], *own[kind]}) for kind in found}
    store = open_store()
    try:
        orphans = {
            FLOWS: _without(asked[FLOWS], lambda ids: store.flows.exist(ids, ())[0]),
            JOBS: _without(asked[JOBS], lambda ids: store.flows.exist((), ids)[1]),
            SCRATCH: _ended(asked[SCRATCH], store),
        }
    finally:
        store.close()
    if owner is not None:
        for kind in found:
            _adopt(root, owner, kind, set(found[kind]).difference(own[kind], orphans[kind]))
            orphans[kind] = [name for name in orphans[kind] if name in own[kind]]
    return sum(remove_owned(root, owner, kind, orphans[kind], _report) for kind in orphans)


def _adopt(root: str, owner: str, kind: str, folders: Iterable[str]) -> None:
    """Notes that folders which the store knows belong to it, such as those that an older version has made."""
    known = [name for name in folders if (_is_attempt(name) if kind == SCRATCH else owner_of(name) is not None)]
    if known:
        try:
            mark(root, owner, kind, known)
        except OSError as error:
            log.warning("a folder of a job could not be marked", folder=known[0], why=error.strerror or error)


def _without(folders: Sequence[str], existing: Callable[[Sequence[str]], set[str]]) -> list[str]:
    """Returns the folders whose flow or job does not exist; names that no folder of ours has are left out."""
    owners = [owner for owner in map(owner_of, folders) if owner is not None]
    gone: list[str] = []
    for start in range(0, len(owners), AT_ONCE):
        some = owners[start : start + AT_ONCE]
        kept = existing(some)
        gone += [name_of(owner) for owner in some if owner not in kept]
    return gone


def _ended(folders: Sequence[str], store: Store) -> list[str]:
    """Returns the folders of attempts that have ended."""
    if not folders:
        return []
    running = {attempt_name(row.id, row.claim) for row in store.jobs.claims(MOST_CLAIMS)}
    return [name for name in folders if _is_attempt(name) and name not in running]


def _is_attempt(name: str) -> bool:
    """Returns whether a folder of an attempt may have this name."""
    return name.rpartition(".")[2].isdecimal()


def _report(name: str, error: OSError) -> None:
    log.warning("a folder of a job could not be removed", folder=name, why=error.strerror or error)
