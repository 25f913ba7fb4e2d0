"""Measures the limits of the machine: the same operations with minimal means, without Chargehand."""

import os
import random
import select
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

import apsw

from bench.processes import pss
from bench.scene import ended, interpreter
from chargehand import clock

_TABLE = """
CREATE TABLE job (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, state TEXT NOT NULL, fence INTEGER NOT NULL, payload TEXT);
CREATE INDEX ready ON job (seq) WHERE state = 'queued';
"""
_INSERT = "INSERT INTO job (id, state, fence, payload) VALUES (?, 'queued', 0, 'null')"
_CLAIM = """
UPDATE job SET state = 'running', fence = fence + 1
WHERE seq IN (SELECT seq FROM job WHERE state = 'queued' ORDER BY seq LIMIT ?) RETURNING seq, id, fence, payload
"""
_SETTLE = "UPDATE job SET state = 'done' WHERE seq = ? AND fence = ? AND state = 'running'"


def _database(folder: Path) -> Any:
    """Opens a database with the durability of Chargehand: a commit is on disk when it returns."""
    db: Any = apsw.Connection(str(folder / f"bare-{monotonic_ns()}.db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "FULL")
    db.wal_autocheckpoint(250)
    db.execute(_TABLE)
    return db


def pace() -> None:
    """Lets the machine become idle between two latency measurements."""
    clock.sleep(random.uniform(0.002, 0.006))


def commits(folder: Path, count: int, *, inserts: int = 1, paced: bool = False) -> list[float]:
    """Returns the seconds of each of several commits with this number of inserted rows."""
    db = _database(folder)
    rows = [(f"{number:032x}",) for number in range(inserts)]
    took: list[float] = []
    for _ in range(count):
        if paced:
            pace()
        began = clock.monotonic()
        db.execute("BEGIN IMMEDIATE")
        db.executemany(_INSERT, rows)
        db.execute("COMMIT")
        took.append(clock.monotonic() - began)
    db.close()
    return took


def bulk_rate(folder: Path, rows: int) -> float:
    """Returns the rows per second inserted in one transaction."""
    db = _database(folder)
    began = clock.monotonic()
    db.execute("BEGIN IMMEDIATE")
    db.executemany(_INSERT, ((f"{number:032x}",) for number in range(rows)))
    db.execute("COMMIT")
    took = clock.monotonic() - began
    db.close()
    return rows / took


def batch_rate(folder: Path, jobs: int, size: int) -> float:
    """Returns the jobs per second claimed and settled in batches of this size, with one commit each and no workers."""
    db = _database(folder)
    db.execute("BEGIN IMMEDIATE")
    db.executemany(_INSERT, ((f"{number:032x}",) for number in range(jobs)))
    db.execute("COMMIT")
    held: list[Any] = []
    began = clock.monotonic()
    for _ in range(jobs // size + 1):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(_SETTLE, held)
        held = [(seq, fence) for seq, _, fence, _ in db.execute(_CLAIM, (size,))]
        db.execute("COMMIT")
    took = clock.monotonic() - began
    db.close()
    return jobs / took


_ECHO = """
import socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
while sock.recv(1): sock.send(time.monotonic_ns().to_bytes(8, "big"))
"""


def wake_ups(count: int) -> list[float]:
    """Returns the seconds from writing a byte to a socket pair until the other process has received it."""
    ours, theirs = socket.socketpair()
    child = interpreter("-c", _ECHO, str(theirs.fileno()), pass_fds=[theirs.fileno()])
    theirs.close()
    took: list[float] = []
    try:
        for _ in range(count + 1):
            pace()
            began = monotonic_ns()
            ours.send(b".")
            took.append((int.from_bytes(ours.recv(8), "big") - began) / 1e9)
    finally:
        ours.close()
        ended(child)
    return took[1:]


def deaths(count: int, megabytes: int = 0) -> list[float]:
    """Returns the seconds from SIGKILL until a poll of the pidfd reports it; the process is as large as a worker."""
    code = (
        f"import signal, sys, chargehand.worker.main, bench.handlers; load = b'x' * {megabytes * 1_000_000}; "
        "sys.stdout.write('.'); sys.stdout.flush(); signal.pause()"
    )
    return [_death(code) for _ in range(count)]


def _death(code: str) -> float:
    child = interpreter("-c", code)
    pidfd = os.pidfd_open(child.pid)
    try:
        assert child.stdout is not None
        child.stdout.read(1)
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        pace()
        began = clock.monotonic()
        child.send_signal(signal.SIGKILL)
        poller.poll()
        return clock.monotonic() - began
    finally:
        os.close(pidfd)
        child.kill()
        ended(child)


def start(imports: str) -> float:
    """Returns the seconds that a new interpreter needs to import these modules."""
    code = f"import sys, {imports}; sys.stdout.write('.'); sys.stdout.flush()"
    began = clock.monotonic()
    child = interpreter("-c", code)
    try:
        assert child.stdout is not None
        child.stdout.read(1)
        return clock.monotonic() - began
    finally:
        ended(child)


def _waiting(imports: str, count: int) -> list["subprocess.Popen[bytes]"]:
    code = f"import sys, {imports}; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
    children = [interpreter("-c", code) for _ in range(count)]
    for child in children:
        assert child.stdout is not None
        child.stdout.read(1)
    return children


def exits(count: int) -> float:
    """Returns the seconds until this number of idle interpreters, all asked to exit at once, have exited."""
    children = _waiting("chargehand.worker.main", count)
    began = clock.monotonic()
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    for child in children:
        child.wait()
    took = clock.monotonic() - began
    for child in children:
        ended(child)
    return took


def memory() -> float:
    """Returns the MiB (PSS) of three idle interpreters, one of them with the libraries of a node."""
    children = _waiting("apsw, msgspec", 1) + _waiting("json, socket, threading", 2)
    try:
        return pss([child.pid for child in children])
    finally:
        for child in children:
            ended(child)


def waiting() -> float:
    """Returns the MiB (PSS) of an idle interpreter that can start and watch a process."""
    children = _waiting("json, logging, select, signal, socket, subprocess, threading", 1)
    try:
        return pss([child.pid for child in children])
    finally:
        for child in children:
            ended(child)


def sums(*samples: Sequence[float]) -> list[float]:
    """Returns the sums of consecutive durations, sample by sample."""
    return [sum(each) for each in zip(*samples, strict=False)]
