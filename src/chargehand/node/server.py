"""The node's socket: enqueue, hints, orders, state, logs, events. This is the node's side; `calls` the other.

Without it only speed suffers: whoever cannot reach a node uses the store, which is the truth.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from chargehand import log
from chargehand.errors import ChargehandError, PayloadError
from chargehand.model.fleet.orders import Answer
from chargehand.model.job import Enqueued, NewJob, check
from chargehand.model.records import CancelResult
from chargehand.node.log_buffer import LogBuffer, LogEntry
from chargehand.node.loop import Channel, Loop
from chargehand.protocol.control import FRAME_LIMIT, MOST_FOLLOWED, MOST_JOBS, Call, address_of
from chargehand.protocol.frame import BadFrame, Frame, encode

LINES_AT_ONCE = 200
"""Log lines in one reply: they are cut at 4 KiB each, and a reply at 4 MiB."""


Token = tuple[Channel, int]
"""Who called: the line, and the number of the call on it."""


_calls = msgspec.json.Decoder(Call)


class Office(Protocol):
    """What the node does for those who call."""

    @property
    def enqueue(self) -> Callable[[Token, tuple[NewJob, ...]], None]: ...
    def hint(self, queue: str | None) -> None: ...
    def hurry(self) -> None: ...
    @property
    def order(self) -> Callable[[Token, Call], None]: ...
    @property
    def wake(self) -> Callable[[str], None]: ...
    @property
    def cancel(self) -> Callable[[Token, Call], None]: ...
    @property
    def check_scope(self) -> Callable[[str | None], None]: ...
    @property
    def subscribe(self) -> Callable[[Channel, Call], None]: ...
    @property
    def unsubscribe(self) -> Callable[[Channel], None]: ...
    def view(self) -> dict[str, Any]: ...
    def past(self) -> list[dict[str, Any]]: ...
    def diary(self, component: str) -> dict[str, Any] | None: ...


class Server:
    """Listens beside the store, for this user only. The holder of the node's lock may replace a dead one's socket."""

    def __init__(self, loop: Loop, path: Path, office: Office, most_callers: int, journal: LogBuffer) -> None:
        self._loop, self._path, self._office, self._most = loop, path, office, most_callers
        self._journal = journal
        journal.on_entry = self._tell_readers
        self._readers: dict[Channel, Call] = {}
        self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._clients: set[Channel] = set()
        self.followers: dict[str, list[tuple[Channel, int]]] = {}
        """Who waits for the end of which job."""
        self._followed: dict[Channel, set[str]] = {}
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with address_of(path) as address:
            mask = os.umask(0o177)
            try:
                self._listener.bind(address)
            finally:
                os.umask(mask)
        self._listener.listen(128)
        self._listener.setblocking(False)
        loop.add(self._listener.fileno(), self._accept)

    def _accept(self, _: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._turn_away()
            return
        if len(self._clients) >= self._most:
            sock.close()  # it goes to the store instead, which is only slower
            return
        self._clients.add(Channel(self._loop, sock, FRAME_LIMIT, self._called, self._left))

    def _turn_away(self) -> None:
        """No descriptor is left for a caller: one that is kept for this takes it and lets it go, so that none waits."""
        os.close(self._reserve)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def _left(self, channel: Channel) -> None:
        self._clients.discard(channel)
        self._readers.pop(channel, None)
        self._office.unsubscribe(channel)
        for job_id in self._followed.pop(channel, ()):
            self._unfollow(channel, job_id)

    def _follow(self, channel: Channel, call: Call) -> None:
        followed = self._followed.setdefault(channel, set())
        if call.id in followed or len(followed) >= MOST_FOLLOWED:
            raise ValueError("the same job twice, or too many jobs, to follow on one line")
        followed.add(call.id)
        self.followers.setdefault(call.id, []).append((channel, call.call))
        self._office.hurry()

    def _unfollow(self, channel: Channel, job_id: str) -> None:
        kept = [follower for follower in self.followers.pop(job_id, ()) if follower[0] is not channel]
        if kept:
            self.followers[job_id] = kept
        self._followed.get(channel, set()).discard(job_id)

    def _called(self, channel: Channel, frame: Frame | BadFrame) -> None:
        if isinstance(frame, BadFrame):
            log.warning("a caller sent a bad frame", why=frame.why)
            self._hang_up(channel)
            return
        try:
            self._answer(channel, frame.kind, _calls.decode(frame.body))
        except (ValueError, RecursionError) as error:
            log.warning("a caller sent a bad request", kind=frame.kind, why=error)
            self._hang_up(channel)

    def _answer(self, channel: Channel, kind: str, call: Call) -> None:
        match kind:
            case "ENQUEUE":
                self._enqueue(channel, call)
            case "HINT":
                self._office.hint(call.queue)
            case "STATUS":
                channel.send(encode("REPLY", {"call": call.call, "status": self._office.view()}))
            case "PAST":
                channel.send(encode("REPLY", {"call": call.call, "queues": self._office.past()}))
            case "DIARY":
                channel.send(encode("REPLY", {"call": call.call, "diary": self._office.diary(call.id)}))
            case "WAKE":
                self._wake((channel, call.call), call.id)
            case "ORDER":
                self.order((channel, call.call), call)
            case "CANCEL":
                if len(call.ids) > MOST_JOBS:
                    raise ValueError(f"{len(call.ids)} jobs in one request; allowed are {MOST_JOBS}")
                self._office.cancel((channel, call.call), call)
            case "LOGS":
                self._read_logs(channel, call)
            case "SUBSCRIBE":
                self._subscribe(channel, call)
            case "PING":
                channel.send(encode("REPLY", {"call": call.call}))
            case "FOLLOW":
                self._follow(channel, call)
            case "UNFOLLOW":
                self._unfollow(channel, call.id)
            case _:
                self.refuse((channel, call.call), f"this node does not know the request {kind}", "ChargehandError")

    def order(self, token: Token, call: Call) -> None:
        """Have an order carried out, or say why not."""
        try:
            self._office.order(token, call)
        except ChargehandError as error:
            log.warning("order refused", verb=call.verb, scope=call.scope or "*", who=call.who, why=error)
            self.refuse(token, str(error), type(error).__name__)

    def _wake(self, token: Token, crew: str) -> None:
        channel, call = token
        try:
            self._office.wake(crew)
        except ChargehandError as error:
            self.refuse(token, str(error), type(error).__name__)
            return
        channel.send(encode("REPLY", {"call": call}))

    def _subscribe(self, channel: Channel, call: Call) -> None:
        try:
            self._office.subscribe(channel, call)
        except ChargehandError as error:
            self.refuse((channel, call.call), str(error), type(error).__name__)

    def _read_logs(self, channel: Channel, call: Call) -> None:
        try:
            self._office.check_scope(call.scope)
        except ChargehandError as error:
            self.refuse((channel, call.call), str(error), type(error).__name__)
            return
        self._logs(channel, call)

    def answer_order(self, token: Token, answers: list[Answer]) -> None:
        """What will happen."""
        channel, call = token
        channel.send(encode("REPLY", {"call": call, "answers": msgspec.to_builtins(answers)}))

    def answer_cancel(self, token: Token, found: Sequence[CancelResult]) -> None:
        """What came of it: at once, or on its way."""
        channel, call = token
        channel.send(encode("REPLY", {"call": call, "cancelled": [[c.id, c.at_once] for c in found]}))
        for job in found:
            if job.at_once:
                self.ended(job.id)

    def _logs(self, channel: Channel, call: Call) -> None:
        entries = self._journal.last(call.scope, call.id or None, call.count or 0)
        for start in range(0, len(entries), LINES_AT_ONCE):
            told = [entry.told() for entry in entries[start : start + LINES_AT_ONCE]]
            channel.send(encode("REPLY", {"call": call.call, "lines": told, "more": True}))
        channel.send(encode("REPLY", {"call": call.call, "lines": [], "more": False}))
        if call.follow:
            self._readers[channel] = call

    def _tell_readers(self, entry: LogEntry) -> None:
        for channel, call in list(self._readers.items()):
            if entry.concerns(call.scope, call.id or None):
                channel.send(encode("REPLY", {"call": call.call, "lines": [entry.told()]}))

    def _enqueue(self, channel: Channel, call: Call) -> None:
        if len(call.jobs) > MOST_JOBS:
            raise ValueError(f"{len(call.jobs)} jobs in one request; allowed are {MOST_JOBS}")
        try:
            jobs = tuple(check(job) for job in call.jobs)
        except PayloadError as error:
            self.refuse((channel, call.call), str(error), "PayloadError")
            return
        self._office.enqueue((channel, call.call), jobs)

    def _hang_up(self, channel: Channel) -> None:
        channel.close()
        self._left(channel)

    def answer(self, token: Token, enqueued: Sequence[Enqueued]) -> None:
        """The jobs are durable."""
        channel, call = token
        channel.send(encode("REPLY", {"call": call, "enqueued": [[e.id, e.created] for e in enqueued]}))

    def refuse(self, token: Token, why: str, kind: str) -> None:
        """The request was not carried out."""
        channel, call = token
        channel.send(encode("REPLY", {"call": call, "error": why, "kind": kind}))

    def ended(self, job_id: str) -> None:
        """A job has ended for good: tell whoever follows it."""
        for channel, call in self.followers.pop(job_id, ()):
            self._followed.get(channel, set()).discard(job_id)
            channel.send(encode("REPLY", {"call": call, "ended": True}))

    def close(self) -> None:
        self._loop.remove(self._listener.fileno())
        self._listener.close()
        os.close(self._reserve)
        self._path.unlink(missing_ok=True)
        for channel in list(self._clients):
            channel.close()
