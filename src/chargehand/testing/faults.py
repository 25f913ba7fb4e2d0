"""A handler that fails on request in every way a worker can, for tests of supervision.

A crew refers to it as `chargehand.testing.faults:Faulty`. Workers load this module, so it imports nothing heavy.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from chargehand import clock
from chargehand.errors import GiveUp, Retry, WorkerBroken
from chargehand.handler import Handler, Job
from chargehand.protocol.frame import encode
from chargehand.testing.faults_loading import FOREVER, misload

if TYPE_CHECKING:
    from chargehand.worker.context import Context
    from chargehand.worker.main import Worker

    Task: TypeAlias = Job[dict[str, Any]]
    Step: TypeAlias = dict[str, Any]
    Act: TypeAlias = Callable[[Task, Step], None]

FAULTS: dict[str, str] = {}
"""The values of `fault` in a payload, each with its description; its parameters are in the payload, too."""
LIFETIME = 300
"""Seconds after which processes and threads that a fault left behind end by themselves."""

_logger = logging.getLogger(__name__)  # before the first job, so that the worker forwards log records
_acts: dict[str, "Act"] = {}
_state = {"sick": False, "unsound": False}
"""What earlier jobs left behind in this process."""


class Faulty(Handler[dict[str, Any], Any]):
    """Performs the payload's `fault`, then that of the payload in its `then`, and so on; finally returns `result`.

    With a `ledger`, it appends `start ID PID` to that file, and `end ID PID` when it succeeds.
    """

    def set_up(self) -> None:
        misload(self)

    def is_sound(self) -> bool:
        return not _state["unsound"]

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        _note(job, "start", job.id, os.getpid())
        if _state["sick"]:
            raise RuntimeError("this process has failed every job since a fault made it sick")
        for step in _steps(job.payload):
            if "fault" in step:
                _act(step["fault"])(job, step)
        _note(job, "end", job.id, os.getpid())
        return job.payload.get("result")


def _steps(payload: "Step | None") -> "Iterator[Step]":
    while payload is not None:
        yield payload
        payload = payload.get("then")


def _act(name: str) -> "Act":
    if name not in _acts:
        raise GiveUp(f"there is no fault {name!r}; there are: {', '.join(FAULTS)}")
    return _acts[name]


def _note(job: "Task", *words: object) -> None:
    """Appends one line to the job's ledger, atomically, even if the process is killed right afterwards."""
    if "ledger" in job.payload:
        descriptor = os.open(job.payload["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, (" ".join(str(word) for word in words) + "\n").encode())
        os.close(descriptor)


def _seconds(step: "Step") -> float:
    return float(step.get("seconds", FOREVER))


def _worker(job: "Task") -> "Worker":
    return cast("Context", job._context).worker  # pyright: ignore[reportPrivateUsage]


def _fault(name: str, sentence: str) -> "Callable[[Act], Act]":
    def enter(act: "Act") -> "Act":
        FAULTS[name] = sentence
        _acts[name] = act
        return act

    return enter


# exceptions


@_fault("raise", "Raises a RuntimeError with `text`.")
def _raise(job: "Task", step: "Step") -> None:
    raise RuntimeError(step.get("text", "as told"))


@_fault("retry", "Raises Retry with a delay of `after` seconds (0).")
def _retry(job: "Task", step: "Step") -> None:
    raise Retry(after=step.get("after", 0))


@_fault("give up", "Raises GiveUp with `reason`.")
def _give_up(job: "Task", step: "Step") -> None:
    raise GiveUp(step.get("reason", "as told"))


@_fault("sys.exit", "Calls sys.exit with `code` (1): an exception that does not end the process.")
def _sys_exit(job: "Task", step: "Step") -> None:
    sys.exit(step.get("code", 1))


# processes that can do nothing any more


@_fault("sick", "Raises, and so does every later job of this process, as after a lost GPU context that nobody reports.")
def _sick(job: "Task", step: "Step") -> None:
    _state["sick"] = True
    raise RuntimeError(step.get("text", "as told"))


@_fault("unsound", "Raises, and makes the handler's self-test, `is_sound`, return False.")
def _unsound(job: "Task", step: "Step") -> None:
    _state["unsound"] = True
    raise RuntimeError(step.get("text", "as told"))


@_fault("broken", "Raises WorkerBroken.")
def _broken(job: "Task", step: "Step") -> None:
    raise WorkerBroken(step.get("text", "as told"))


@_fault("cuda", "Raises what `text` says (a device-side assert), as PyTorch does when the CUDA context is lost.")
def _cuda(job: "Task", step: "Step") -> None:
    raise RuntimeError(step.get("text", "CUDA error: device-side assert triggered"))


# ends of the process


@_fault("exit", "Ends the process at once with `code` (1).")
def _exit(job: "Task", step: "Step") -> None:
    os._exit(step.get("code", 1))


@_fault("segfault", "Ends the process with SIGSEGV, from C code.")
def _segfault(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import segfault

    segfault()


@_fault("abort", "Ends the process with SIGABRT, as a failed assertion in C does.")
def _abort(job: "Task", step: "Step") -> None:
    os.abort()


@_fault("kill", "Ends the process with SIGKILL, as the kernel does when memory runs out.")
def _kill(job: "Task", step: "Step") -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# memory


@_fault("memory", "Limits its address space to `bytes` (64 MiB) more than it has, and allocates until MemoryError.")
def _memory(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import exhaust_memory

    exhaust_memory(step.get("bytes", 64 << 20))


@_fault("descriptors", "Limits its open files to 256, and opens files until OSError.")
def _descriptors(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import exhaust_descriptors

    exhaust_descriptors()


@_fault("recurse", "Calls itself until RecursionError.")
def _recurse(job: "Task", step: "Step") -> None:
    _recurse(job, step)


@_fault("hog", "Uses `bytes` of memory for `seconds` (0), then releases them.")
def _hog(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import hog_memory

    hog_memory(step["bytes"], step.get("seconds", 0))


@_fault("leak", "Uses `bytes` of memory and never releases them.")
def _leak(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import leak_memory

    leak_memory(step["bytes"])


# jobs that hang or take long


@_fault("nap", "Sleeps for `seconds` (forever): sends heartbeats, uses no CPU.")
def _nap(job: "Task", step: "Step") -> None:
    clock.sleep(_seconds(step))


@_fault("spin", "Uses CPU in Python for `seconds` (forever): sends heartbeats.")
def _spin(job: "Task", step: "Step") -> None:
    until = clock.monotonic() + _seconds(step)
    while clock.monotonic() < until:
        pass


@_fault("sleep in c", "Sleeps in C for `seconds` (forever) while holding the GIL: no heartbeats, no CPU.")
def _sleep_in_c(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import sleep_in_c

    sleep_in_c(_seconds(step))


@_fault("burn in c", "Uses CPU in C for `seconds` (forever) while holding the GIL: no heartbeats.")
def _burn_in_c(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import burn_in_c

    burn_in_c(_seconds(step))


@_fault("native threads", "Sleeps in C for `seconds`, holding the GIL, while a thread works natively: no heartbeats.")
def _native_threads(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import wait_for_native_thread

    wait_for_native_thread(_seconds(step))


@_fault("wait", "Waits until the file `gate` exists, and reports progress meanwhile.")
def _wait(job: "Task", step: "Step") -> None:
    looks = 0
    while not os.path.exists(step["gate"]):
        job.progress(looks, stage="waiting")
        looks += 1
        clock.sleep(0.005)


@_fault("deadlock", "Deadlocks the main thread with another thread.")
def _deadlock(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import deadlock

    deadlock()


@_fault("stop", "Stops itself with SIGSTOP; the job continues after a SIGCONT.")
def _stop(job: "Task", step: "Step") -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@_fault("ignore sigterm", "Ignores SIGTERM for `seconds` (forever), and notes `ignoring ID PID` once it does.")
def _ignore_sigterm(job: "Task", step: "Step") -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _note(job, "ignoring", job.id, os.getpid())
    try:
        clock.sleep(_seconds(step))
    finally:  # in this order, so that a SIGTERM which arrived meanwhile is discarded
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGTERM, before)


# messages to the node


@_fault("garbage", "Writes `lines` (5) that are not frames `into` its `work` or its `pulse` socket, and continues.")
def _garbage(job: "Task", step: "Step") -> None:
    garbage = b"\x00\xff|{[ no frame\n" * step.get("lines", 5)
    match step["into"]:
        case "work":
            _worker(job)._send(garbage)  # pyright: ignore[reportPrivateUsage]
        case "pulse":
            _worker(job).outlet.send(garbage)
        case other:
            raise GiveUp(f"into is {other!r}; must be one of: work, pulse")


@_fault("half a frame", "Writes half of its outcome into the work socket, and sleeps for `seconds` (forever).")
def _half_a_frame(job: "Task", step: "Step") -> None:
    frame = encode("DONE", {"id": job.id, "fence": 1, "result": None})
    _worker(job)._send(frame[: len(frame) // 2])  # pyright: ignore[reportPrivateUsage]
    clock.sleep(_seconds(step))


@_fault("silent", "Blocks its heartbeats for `seconds` (forever): no heartbeats, no CPU, the GIL is free.")
def _silent(job: "Task", step: "Step") -> None:
    with _worker(job).outlet._lock:  # pyright: ignore[reportPrivateUsage]
        clock.sleep(_seconds(step))


@_fault("output", "Writes `lines` (1) to each of stdout, stderr and the log.")
def _output(job: "Task", step: "Step") -> None:
    for number in range(step.get("lines", 1)):
        sys.stdout.write(f"line {number} to stdout\n")
        sys.stderr.write(f"line {number} to stderr\n")
        _logger.warning("line %d to the log", number)
    sys.stdout.flush()
    sys.stderr.flush()


@_fault("flood", "Writes `bytes` (1 MiB) to stdout, in lines of 64 characters or as `one` line.")
def _flood(job: "Task", step: "Step") -> None:
    size = step.get("bytes", 1 << 20)
    piece = b"x" * (1 << 16) if step.get("one") else (b"x" * 63 + b"\n") * (1 << 10)
    while size > 0:
        size -= os.write(1, piece[:size])


# processes and threads that are left behind


@_fault("threads", "Leaves `count` (1) threads running, which wake up after every `pause` seconds (300).")
def _threads(job: "Task", step: "Step") -> None:
    pause = step.get("pause", LIFETIME)

    def sleep() -> None:
        for _ in range(int(LIFETIME / pause)):
            clock.sleep(pause)

    for number in range(step.get("count", 1)):
        threading.Thread(target=sleep, name=f"left {number}").start()


@_fault("fork", "Leaves a forked copy of itself running, and notes `child fork PID`.")
def _fork(job: "Task", step: "Step") -> None:
    pid = os.fork()
    if not pid:
        try:
            clock.sleep(LIFETIME)
        finally:
            os._exit(0)
    _note(job, "child", "fork", pid)


@_fault("children", "Leaves processes running, `kinds` of plain, session and daemon (all), and notes `child KIND PID`.")
def _children(job: "Task", step: "Step") -> None:
    from chargehand.testing.faults_deeds import start_child

    for kind in step.get("kinds", ("plain", "session", "daemon")):
        _note(job, "child", kind, start_child(kind, LIFETIME))
