"""The node's control socket: accepts callers, checks what they send, and passes it on. `host.calls` is the other side.

The store holds the truth: a caller that cannot reach a node uses the store instead, which is only slower.
"""

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from chargehand import log
from chargehand.errors import ChargehandError, StoreError
from chargehand.model.job import check
from chargehand.model.status import NodeStatus
from chargehand.node.followers import Followers
from chargehand.node.log_buffer import LogBuffer, LogEntry
from chargehand.node.loop import Channel, Loop, one_by_one
from chargehand.node.replies import Token, refuse_with, reply
from chargehand.node.requests import Requests
from chargehand.node.stacks import StackRequests
from chargehand.node.subscribers import Subscribers
from chargehand.protocol.control import FRAME_LIMIT, MOST_JOBS, Call, address_of
from chargehand.protocol.frame import BadFrame, Frame
from chargehand.system import private

LINES_AT_ONCE = 200
"""Log lines in one reply: a line is cut at 4 KiB, and a reply must stay under 4 MiB."""
TAIL_LIMIT = 1 << 18
"""Characters of log lines in one reply that may go through the store."""

_calls = msgspec.json.Decoder(Call)


class Documents(msgspec.Struct, frozen=True):
    """What callers can read of the node: each is made when it is asked for."""

    status: Callable[[], NodeStatus]
    past: Callable[[], list[dict[str, Any]]]
    """The recent figures of every queue."""
    diary: Callable[[str], dict[str, Any] | None]
    """The recent history of one worker."""


class Server:
    """Listens on the control socket, for this user only. The holder of the node's lock replaces a stale socket."""

    def __init__(
        self,
        loop: Loop,
        path: Path,
        most_callers: int,
        requests: Requests,
        subscribers: Subscribers,
        followers: Followers,
        stacks: StackRequests,
        log_buffer: LogBuffer,
        documents: Documents,
    ) -> None:
        self._loop, self._path, self._most = loop, path, most_callers
        self._requests, self._subscribers, self._followers = requests, subscribers, followers
        self._stacks, self._documents, self._log = stacks, documents, log_buffer
        log_buffer.on_entry = self._send_to_readers
        self._readers: dict[Channel, Call] = {}
        """The callers that follow the log."""
        self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._clients: set[Channel] = set()
        self._listen()

    def _listen(self) -> None:
        """Creates the socket, for this user only, in place of whatever has its name. Raises StoreError for a folder."""
        if stat.S_ISDIR(_mode_of(self._path)):
            raise StoreError(f"{self._path} is a folder in place of the node's socket: remove it")
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Linux gives the file the mode of the socket: there is no moment at which another user could connect.
        os.fchmod(self._listener.fileno(), private.PRIVATE)
        with address_of(self._path) as address:
            self._listener.bind(address)
        self._inode = self._path.lstat().st_ino
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._loop.add(self._listener.fileno(), self._accept)

    def _is_named(self) -> bool:
        """Returns whether the socket is still the file of its name."""
        try:
            return self._path.lstat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def restore(self) -> bool:
        """Create the socket again if somebody deleted or replaced it; returns whether it was. Connections stay."""
        if self._is_named():
            return False
        self._loop.remove(self._listener.fileno())
        self._listener.close()
        self._listen()
        return True

    # connections

    def _accept(self, _: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._reject()
            return
        uid = private.peer_of(sock)
        if not private.may_call(uid):
            log.warning("a caller of another user was refused", user=private.user(uid))
            sock.close()
            return
        if len(self._clients) >= self._most:
            sock.close()  # the caller uses the store instead, which is only slower
            return
        self._clients.add(Channel(self._loop, sock, FRAME_LIMIT, one_by_one(self._received), self._disconnected))

    def _reject(self) -> None:
        """Accept and close a connection with the reserved descriptor: no other is left, and no caller may wait."""
        os.close(self._reserve)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def _disconnect(self, channel: Channel) -> None:
        channel.close()
        self._disconnected(channel)

    def _disconnected(self, channel: Channel) -> None:
        self._clients.discard(channel)
        self._readers.pop(channel, None)
        self._subscribers.unsubscribe(channel)
        self._followers.disconnected(channel)

    def close(self) -> None:
        """Close the socket and every connection."""
        self._loop.remove(self._listener.fileno())
        self._listener.close()
        os.close(self._reserve)
        if self._is_named():
            self._path.unlink(missing_ok=True)
        for channel in list(self._clients):
            channel.close()

    # requests

    def _received(self, channel: Channel, frame: Frame | BadFrame) -> None:
        if isinstance(frame, BadFrame):
            log.warning("a caller sent a bad frame", why=frame.why)
            self._disconnect(channel)
            return
        try:
            call = _calls.decode(frame.body)
            try:
                self._dispatch(channel, frame.kind, call)
            except ChargehandError as error:
                refuse_with((channel, call.call), error)
        except (ValueError, RecursionError) as error:
            log.warning("a caller sent a bad request", kind=frame.kind, why=error)
            self._disconnect(channel)

    def carry_out(self, token: Token, kind: str, call: Call) -> None:
        """Pass on a request that anybody may make, on the socket or through the store. Raises ChargehandError."""
        match kind:
            case "DIARY":
                reply(token, diary=self._documents.diary(call.id))
            case "STACKS":
                self._stacks.ask(token, call)
            case "WAKE":
                self._requests.wake(call.id)
                reply(token)
            case "ORDER":
                self._requests.order(token, call)
            case "TAIL":
                self._send_tail(token, call)
            case _:
                raise ChargehandError(f"this node does not know the request {kind}")

    def _dispatch(self, channel: Channel, kind: str, call: Call) -> None:
        """Pass a request on. A ChargehandError goes to the caller; a ValueError ends the connection."""
        token = channel, call.call
        match kind:
            case "ENQUEUE" | "ENQUEUETAGGED":  # version 0.1.0 does not support tags, and refuses the second name
                _check_count(len(call.jobs))
                self._requests.enqueue(token, tuple(check(job) for job in call.jobs))
            case "HINT":
                self._requests.hint(call.queue, deleted=call.deleted)
            case "STATUS":
                reply(token, status=msgspec.to_builtins(self._documents.status()))
            case "PAST":
                reply(token, queues=self._documents.past())
            case "CANCEL":
                _check_count(len(call.ids))
                self._requests.cancel(token, call)
            case "LOGS":
                self._requests.check_scope(call.scope)
                self._send_log(channel, call)
            case "SUBSCRIBE":
                self._subscribers.subscribe(channel, call)
            case "PING":
                reply(token)
            case "FOLLOW":
                self._followers.add(channel, call.call, call.id)
                self._requests.hurry()
            case "UNFOLLOW":
                self._followers.remove(channel, call.id)
            case _:
                self.carry_out(token, kind, call)

    # the log

    def _send_log(self, channel: Channel, call: Call) -> None:
        token = channel, call.call
        entries = self._log.last(call.scope, call.id or None, call.count or 0)
        for start in range(0, len(entries), LINES_AT_ONCE):
            reply(token, lines=[entry.told() for entry in entries[start : start + LINES_AT_ONCE]], more=True)
        reply(token, lines=[], more=False)
        if call.follow:
            self._readers[channel] = call

    def _send_tail(self, token: Token, call: Call) -> None:
        """Answer with the last lines, or those after the line `last`, as many as fit into one reply."""
        self._requests.check_scope(call.scope)
        after = None if call.last is None else int(call.last)
        entries, last = self._log.tail(call.scope, call.id or None, call.count or 0, after, TAIL_LIMIT)
        reply(token, lines=[entry.told() for entry in entries], last=str(last))

    def _send_to_readers(self, entry: LogEntry) -> None:
        for channel, call in list(self._readers.items()):
            if entry.concerns(call.scope, call.id or None):
                reply((channel, call.call), lines=[entry.told()])


def _mode_of(path: Path) -> int:
    """Returns the type and permissions of the file at this path; 0 if there is none."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _check_count(jobs: int) -> None:
    if jobs > MOST_JOBS:
        raise ValueError(f"{jobs} jobs in one request; at most {MOST_JOBS} are allowed")
