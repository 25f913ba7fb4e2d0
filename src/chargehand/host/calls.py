"""Calls to a node's socket: for API processes, the command line, and whoever waits for a job.

It never retries: whoever gets NoNode goes to the store, which is the truth.
"""

import asyncio
import os
import select
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from chargehand import clock, errors
from chargehand.errors import ChargehandError
from chargehand.model.job import Enqueued, NewJob
from chargehand.protocol.control import FRAME_LIMIT, address_of
from chargehand.protocol.frame import Decoder, Frame, encode

CALL_TIMEOUT = 5.0
"""Seconds after which a node that does not answer is done without."""
LONGEST_WAIT = 3600.0
LONGEST_RECV = 1.0
"""Seconds in one call of the kernel: a Ctrl+C that comes just before the call is seen only after it."""


class NoNode(ChargehandError):
    """No node listens at this store, or it did not answer in time. Use the store."""


class NodeLeft(NoNode):
    """The node was there, and went away in the middle of it."""


def _error_of(reply: dict[str, Any]) -> ChargehandError:
    """The node's refusal, as the error that it is there."""
    found: Any = getattr(errors, str(reply["kind"]), None)
    known = isinstance(found, type) and issubclass(found, ChargehandError)
    return (found if known else ChargehandError)(reply["error"])


class Connection:
    """One connection to a node, used by one caller at a time."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout)
        self._decoder = Decoder(FRAME_LIMIT)
        self._calls = 0
        self._replies: list[dict[str, Any]] = []
        try:
            with address_of(path) as address:
                self._sock.connect(address)
        except OSError as error:
            self._sock.close()
            raise NoNode(f"no node listens at {path}: {error.strerror or error}") from error

    def idle(self) -> bool:
        """Whether it can be used for a new call: the node has neither closed it nor said something unasked."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        return not poller.poll(0)

    def say(self, kind: str, **fields: Any) -> int:
        """Send a request; its number."""
        self._calls += 1
        self._sock.settimeout(CALL_TIMEOUT)
        try:
            self._sock.sendall(encode(kind, {"call": self._calls, **fields}))
        except OSError as error:
            raise NodeLeft(f"the node went away: {error}") from error
        return self._calls

    def reply(self, call: int, timeout: float) -> dict[str, Any] | None:
        """The reply to that request, or None if it did not come in time."""
        until = clock.monotonic() + timeout
        while True:
            for reply in self._replies:
                if reply["call"] == call:
                    self._replies.remove(reply)
                    return reply
            left = until - clock.monotonic()
            if left <= 0:
                return None
            self._sock.settimeout(min(left, LONGEST_RECV))
            try:
                data = self._sock.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError as error:
                raise NodeLeft(f"the node went away: {error}") from error
            if not data:
                raise NodeLeft("the node went away")
            self._replies += [f.read() for f in self._decoder.feed(data) if isinstance(f, Frame)]

    def close(self) -> None:
        self._sock.close()


class Calls:
    """Calls to a node from any thread: each call has a line of its own, kept for the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[Connection] = []
        self._inherited: list[Connection] = []
        self._pid = os.getpid()

    @contextmanager
    def line(self) -> Generator[Connection]:
        """A line; it is kept only if the call went well."""
        self._check_fork()
        line: Connection | None = None
        while line is None and self._lines:
            line = self._lines.pop()
            if not line.idle():
                line.close()
                line = None
        line = line or Connection(self._path, CALL_TIMEOUT)
        try:
            yield line
        except BaseException:
            line.close()
            raise
        self._lines.append(line)

    def call(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Ask and wait for the answer."""
        with self.line() as line:
            reply = line.reply(line.say(kind, **fields), CALL_TIMEOUT)
            if reply is None:
                raise NoNode(f"the node at {self._path} did not answer within {CALL_TIMEOUT:g} s")
            if "error" not in reply:
                return reply
        raise _error_of(reply)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Have the node write these jobs; returns once they are durable."""
        reply = self.call("ENQUEUE", jobs=[msgspec.to_builtins(job) for job in jobs])
        return [Enqueued(job_id, created) for job_id, created in reply["enqueued"]]

    def cancel(self, ids: Sequence[str], who: str = "", origin: str = "") -> list[tuple[str, bool]]:
        """Have the node cancel these jobs: each with whether that was at once; those that had ended are left out."""
        reply = self.call("CANCEL", ids=list(ids), who=who, origin=origin)
        return [(job_id, at_once) for job_id, at_once in reply["cancelled"]]

    def hint(self, queue: str | None) -> bool:
        """Tell the node that there is work; whether there was one to tell."""
        try:
            with self.line() as line:
                line.say("HINT", queue=queue)
        except NoNode:
            return False
        return True

    def logs(self, scope: str | None, job: str | None, count: int, follow: bool) -> Iterator[dict[str, Any]]:
        """The node's last lines; then, if wanted, the new ones as they come, until the node goes away."""
        line = Connection(self._path, CALL_TIMEOUT)
        try:
            call = line.say("LOGS", scope=scope, id=job or "", count=count, follow=follow)
            limit = CALL_TIMEOUT
            while True:
                reply = line.reply(call, limit)
                if reply is None and limit == CALL_TIMEOUT:
                    raise NoNode(f"the node at {self._path} did not answer within {CALL_TIMEOUT:g} s")
                reply = reply or {"lines": []}
                if "error" in reply:
                    raise _error_of(reply)
                yield from reply["lines"]
                if not reply.get("more", True):  # those that there were
                    if not follow:
                        return
                    limit = LONGEST_WAIT
        finally:
            line.close()

    def status(self) -> dict[str, Any]:
        """What the node shows of itself."""
        return self.call("STATUS")["status"]

    def past(self) -> list[dict[str, Any]]:
        """How the queues fared over the last two hours, as far as the node saw it."""
        return self.call("PAST")["queues"]

    def diary(self, component: str) -> dict[str, Any] | None:
        """What happened to a worker lately, as far as the node saw it; None if it knows nothing of it."""
        return self.call("DIARY", id=component)["diary"]

    def wait(self, job_id: str, ended: Callable[[], bool], until: float | None) -> None:
        """Return when the job may have ended. `ended` asks the store, which is the truth; the node only hurries us."""
        with self.line() as line:
            call = line.say("FOLLOW", id=job_id)
            while not ended():
                left = 1.0 if until is None else until - clock.monotonic()
                if left <= 0:
                    raise TimeoutError(f"job {job_id} did not end in time")
                if line.reply(call, min(left, 1.0)) is not None:
                    return
            line.say("UNFOLLOW", id=job_id)

    def close(self) -> None:
        self._check_fork()
        while self._lines:
            self._lines.pop().close()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            self._inherited = self._lines  # the parent still uses them
            self._lines, self._pid = [], os.getpid()


@asynccontextmanager
async def follow(path: Path, job_id: str) -> AsyncGenerator[Callable[[float], Awaitable[None]]]:
    """For event loops: gives a function that returns when the job may have ended, or after so many seconds.

    With a node it waits for its word, and for a second at most; without one it only lets the time pass.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        with address_of(path) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        writer.write(encode("FOLLOW", {"call": 1, "id": job_id}))
    except OSError:
        reader = None

    async def news(otherwise: float) -> None:
        nonlocal reader
        if reader is None:
            await asyncio.sleep(otherwise)
            return
        try:
            async with asyncio.timeout(1.0):
                if not await reader.readline():
                    reader = None
        except TimeoutError:
            return
        except OSError:
            reader = None

    try:
        yield news
    finally:
        if writer is not None:
            writer.close()
