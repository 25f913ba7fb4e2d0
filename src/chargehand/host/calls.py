"""Calls to the control socket of a node, for API processes, the command line and callers that wait for a job.

Calls are not retried: a caller that receives NoNode uses the store, which is authoritative.
"""

import asyncio
import os
import select
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import repeat
from typing import Any

import msgspec

from chargehand import clock, errors, log
from chargehand.errors import ChargehandError
from chargehand.host import nodelock
from chargehand.model.fleet.stacks import WorkerStacks
from chargehand.model.job import Enqueued, NewJob
from chargehand.protocol.control import FRAME_LIMIT
from chargehand.protocol.frame import Decoder, Frame, encode
from chargehand.stores.location import Location
from chargehand.system import forks, private

CALL_TIMEOUT = 5.0
"""Seconds after which a call to a node that does not answer fails."""
LONGEST_WAIT = 3600.0
LONGEST_RECV = 1.0
"""The longest system call, in seconds: a Ctrl+C just before it is handled only after it."""


TOLD = 1.0
"""Seconds between two looks for the end of a job that a node of this machine reports, in a store for one node."""
FIRST_LOOK, LONGEST_LOOK = 0.01, 0.25
"""Seconds between looks for the end of a job that nobody may report: doubled until they are the longest."""


def looks() -> Iterator[float]:
    """Yields the pauses between looks for the end of a job: a short job is not waited for much longer than it takes."""
    pause = FIRST_LOOK
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_LOOK)


class NoNode(ChargehandError):
    """No node serves the store, or it did not answer in time. The caller uses the store."""


class NodeLeft(NoNode):
    """The node closed the connection during the call."""


class NoAnswer(NoNode):
    """The node did not answer in time. It drops the request, unless it has carried it out already."""


class ForeignNode(NoNode):
    """Another user's process listens in place of a node. Nothing was sent to it."""


_encoder = msgspec.json.Encoder()
_reported: set[tuple[Location, int]] = set()
"""The foreign nodes that this process has logged."""


def _check_peer(sock: socket.socket, location: Location) -> None:
    """Raises ForeignNode if the process at the other end may not serve the store."""
    uid = private.peer_of(sock)
    if private.may_serve(uid, location.path):
        return
    whose, me = private.user(uid), private.user(os.geteuid())
    if (location, uid) not in _reported:
        _reported.add((location, uid))
        log.warning(
            "a process of another user listens in place of the node; it is not used",
            event=log.Event.NODE_FOREIGN, socket=location.socket, user=whose,
        )  # fmt: skip
    raise ForeignNode(f"a process of {whose} listens at {location.socket}, and this process runs as {me}")


def error_of(reply: dict[str, Any]) -> ChargehandError:
    """Returns the error of a reply as the exception that the node raised."""
    found: Any = getattr(errors, str(reply["kind"]), None)
    if found is errors.StoreError:
        return errors.StoreError(reply["error"], reply.get("code"))  # a node of version 0.1.0 sends no code
    known = isinstance(found, type) and issubclass(found, ChargehandError)
    return (found if known else ChargehandError)(reply["error"])


def _encode(kind: str, body: dict[str, Any]) -> bytes:
    """Encodes a request, which may contain structs."""
    try:
        return b"%b|%b\n" % (kind.encode(), _encoder.encode(body))
    except UnicodeEncodeError:  # texts from a command line, for example, which are not valid Unicode
        return encode(kind, msgspec.to_builtins(body))


class Connection:
    """One connection to a node, used by one caller at a time."""

    def __init__(self, location: Location, timeout: float) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout)
        self._poller = select.poll()
        forks.close_in_child(self._sock)
        self._decoder = Decoder(FRAME_LIMIT)
        self._calls = 0
        self._replies: list[dict[str, Any]] = []
        try:
            with private.socket_address(location.socket) as address:
                self._sock.connect(address)
            _check_peer(self._sock, location)
            self._sock.setblocking(False)  # not a timeout, which would cost two more system calls for each of ours
            self._poller.register(self._sock, select.POLLIN)
        except OSError as error:
            self._sock.close()
            raise NoNode(f"no node listens at {location.socket}: {error.strerror or error}") from error
        except NoNode:
            self._sock.close()
            raise

    def idle(self) -> bool:
        """Returns whether the connection can be used for a new call: it is open, and nothing unread has arrived."""
        return not self._poller.poll(0)

    def send(self, kind: str, **fields: Any) -> int:
        """Sends a request. Returns its number."""
        self._calls += 1
        frame = _encode(kind, {"call": self._calls, **fields})
        try:
            sent = self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise NodeLeft(f"the node closed the connection: {error}") from error
        if sent < len(frame):
            self._send_slowly(frame[sent:])
        return self._calls

    def _send_slowly(self, rest: bytes) -> None:
        """Sends what the socket did not accept at once."""
        self._sock.settimeout(CALL_TIMEOUT)
        try:
            self._sock.sendall(rest)
            self._sock.setblocking(False)
        except OSError as error:
            raise NodeLeft(f"the node closed the connection: {error}") from error

    def reply(self, call: int, timeout: float) -> dict[str, Any] | None:
        """Returns the reply to that request; None if it did not arrive in time."""
        until = clock.monotonic() + timeout
        while True:
            for reply in self._replies:
                if reply["call"] == call:
                    self._replies.remove(reply)
                    return reply
            left = until - clock.monotonic()
            if left <= 0:
                return None
            # Not a blocking recv: the kernel would wake it whenever the node has read what this process sent.
            if not self._poller.poll(min(left, LONGEST_RECV) * 1000):
                continue
            try:
                data = self._sock.recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError as error:
                raise NodeLeft(f"the node closed the connection: {error}") from error
            if not data:
                raise NodeLeft("the node closed the connection")
            self._replies += [f.read() for f in self._decoder.feed(data) if isinstance(f, Frame)]

    def close(self) -> None:
        self._sock.close()

    def withdraw(self) -> None:
        """Closes the connection, also if a forked process has it: the node drops what it has not carried out."""
        with suppress(OSError):  # the node has closed it, or this is a forked process
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class Calls:
    """Calls to the node of this machine from any thread. Each call has its own connection, which is kept for the next
    call."""

    def __init__(self, location: Location) -> None:
        self._location, self._path = location, location.socket
        self._lines: dict[Location, list[Connection]] = {}
        """By the node: several may run on this machine, and the one of this process may start later than others."""
        forks.in_child(self._after_fork)

    @contextmanager
    def line(self) -> Generator[Connection]:
        """Yields a connection, which is kept for later calls, or closed if the block raises."""
        where = nodelock.nearest(self._location)
        # In a process forked inside the block, the connection does not come back to `self._lines`.
        lines = self._lines.setdefault(where, [])
        line: Connection | None = None
        while line is None and lines:
            line = lines.pop()
            if not line.idle():
                line.close()
                line = None
        line = line or Connection(where, CALL_TIMEOUT)
        try:
            yield line
        except BaseException:
            line.withdraw()
            raise
        lines.append(line)

    def call(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Sends a request and returns the reply. Raises the error of the node, or NoNode."""
        with self.line() as line:
            reply = line.reply(line.send(kind, **fields), CALL_TIMEOUT)
            if reply is None:
                raise NoAnswer(f"the node at {self._path} did not answer within {CALL_TIMEOUT:g} s")
            if "error" not in reply:
                return reply
        raise error_of(reply)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueues jobs through the node; they are durable when the method returns. Returns their ids."""
        tagged = any(job.tags or job.share or job.expires_ms for job in jobs)
        try:
            reply = self.call("ENQUEUETAGGED" if tagged else "ENQUEUE", jobs=jobs)
        except ChargehandError as error:
            if tagged and type(error) is ChargehandError:  # a node of version 0.1.0, which would drop them
                raise NoNode(f"the node at {self._path} does not support an option of the job: {error}") from error
            raise
        return [Enqueued(job_id, created) for job_id, created in reply["enqueued"]]

    def cancel(self, ids: Sequence[str], who: str = "", origin: str = "") -> list[tuple[str, bool]]:
        """Cancels jobs through the node. Returns those that had not ended, and whether each was cancelled at once."""
        reply = self.call("CANCEL", ids=list(ids), who=who, origin=origin)
        return [(job_id, at_once) for job_id, at_once in reply["cancelled"]]

    def hint(self, queue: str | None, *, deleted: bool = False) -> bool:
        """Notifies the node of new jobs, or that some were deleted. Returns whether a node was reached."""
        about = {"deleted": True} if deleted else {}
        try:
            with self.line() as line:
                line.send("HINT", queue=queue, **about)
        except NoNode:
            return False
        return True

    def logs(self, scope: str | None, job: str | None, count: int, follow: bool) -> Iterator[dict[str, Any]]:
        """Yields the last log lines of the node; with `follow`, new ones as they come, until the node ends."""
        line = Connection(nodelock.nearest(self._location), CALL_TIMEOUT)
        try:
            call = line.send("LOGS", scope=scope, id=job or "", count=count, follow=follow)
            limit = CALL_TIMEOUT
            while True:
                reply = line.reply(call, limit)
                if reply is None and limit == CALL_TIMEOUT:
                    raise NoNode(f"the node at {self._path} did not answer within {CALL_TIMEOUT:g} s")
                reply = reply or {"lines": []}
                if "error" in reply:
                    raise error_of(reply)
                yield from reply["lines"]
                if not reply.get("more", True):  # the stored lines are complete
                    if not follow:
                        return
                    limit = LONGEST_WAIT
        finally:
            line.close()

    def status(self) -> dict[str, Any]:
        """Returns the status of the node."""
        return self.call("STATUS")["status"]

    def past(self) -> list[dict[str, Any]]:
        """Returns the throughput of each queue in the last two hours, as the node recorded it."""
        return self.call("PAST")["queues"]

    def diary(self, component: str) -> dict[str, Any] | None:
        """Returns the recent history of a worker; None if the node does not know the worker."""
        return self.call("DIARY", id=component)["diary"]

    def stacks(self, worker: str, who: str) -> WorkerStacks:
        """Returns what a worker is doing now, as the node found out."""
        return msgspec.convert(self.call("STACKS", scope=worker, who=who)["stacks"], WorkerStacks)

    def wait(self, job_id: str, ended: Callable[[], bool], until: float | None) -> None:
        """Returns when `ended`, which reads the store, is true, or when the node reports the end of the job.

        The job may run on another node, which the one of this machine knows of only later. Raises TimeoutError at
        `until`.
        """
        pauses = looks() if self._location.server is not None else repeat(TOLD)
        with self.line() as line:
            call = line.send("FOLLOW", id=job_id)
            while not ended():
                left = TOLD if until is None else until - clock.monotonic()
                if left <= 0:
                    raise TimeoutError(f"job {job_id} did not end in time")
                if line.reply(call, min(left, next(pauses))) is not None:
                    return
            line.send("UNFOLLOW", id=job_id)

    def close(self) -> None:
        for lines in list(self._lines.values()):
            while lines:
                lines.pop().close()

    def _after_fork(self) -> None:
        self._lines = {}


async def connect(location: Location) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the node of this machine, for event loops. Forked processes do not share the connection.

    Raises OSError or NoNode.
    """
    location = nodelock.nearest(location)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    forks.close_in_child(sock)
    try:
        with private.socket_address(location.socket) as address:
            await asyncio.get_running_loop().sock_connect(sock, address)
        _check_peer(sock, location)
        return await asyncio.open_unix_connection(sock=sock)
    except BaseException:
        sock.close()
        raise


@asynccontextmanager
async def follow(location: Location, job_id: str) -> AsyncGenerator[Callable[[float], Awaitable[None]]]:
    """Yields, for event loops, a function that returns when the job may have ended, or after a given time.

    With a node it waits for a message, in a store for one node for one second at most; without a node it sleeps for the
    given time.
    """
    longest = None if location.server is not None else TOLD
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await connect(location)
        writer.write(encode("FOLLOW", {"call": 1, "id": job_id}))
    except (OSError, NoNode):
        reader = None

    async def news(otherwise: float) -> None:
        nonlocal reader
        if reader is None:
            await asyncio.sleep(otherwise)
            return
        try:
            async with asyncio.timeout(longest or otherwise):
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
