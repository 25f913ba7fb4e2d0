"""ASGI middleware: the request id, the check of the headers, and the answer to unexpected errors.

Authentication is not done here, but by each route.
"""

import re
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand import log, tracing
from chargehand.ids import new_id
from chargehand.model.trace import trace_id
from chargehand.web.problems import REQUEST_ID, Problem, answer

_OWN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(:\d{1,5})?")
MOST_PARAMETERS = 1000
"""Query parameters of a request; as many as fit into the headers would hold the event loop for 50 ms."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
}
"""Default headers of every response."""


class Gate:
    """Checks every request before its route does. `hosts`: the allowed host names; empty: any.

    `limit`: the largest request line and headers together, in bytes; not every server has one.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], limit: int) -> None:
        self._app, self._limit = app, limit
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        name = given if _OWN_ID.fullmatch(given) else new_id()
        scope[REQUEST_ID] = name
        token = log.request_id.set(name)
        # The rest of a body that is refused must not be parsed: each of its chunks can be one byte.
        reply = _Reply(send, name, close="transfer-encoding" in headers)
        try:
            self._check(scope, headers)
            trace = headers.get("traceparent")
            with tracing.belonging_to(trace if trace_id(trace) is not None else None):
                await self._app(scope, receive, reply)
        except Problem as problem:
            await self._refuse(problem, scope, receive, reply)
        except Exception:
            log.error("a request failed with an unexpected error", trace=True, path=scope["path"])
            if reply.begun:
                raise
            problem = Problem(500, "unforeseen", f"unexpected error; see the log for request id {name}")
            await self._refuse(problem, scope, receive, reply)
        finally:
            log.request_id.reset(token)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        if reply.begun:
            raise problem
        await answer(problem, scope[REQUEST_ID])(scope, receive, reply)

    def _check(self, scope: Scope, headers: Headers) -> None:
        size = sum(len(name) + len(value) for name, value in headers.raw)
        if size + len(scope["path"]) + len(scope["query_string"]) > self._limit:
            raise Problem(431, "headers-too-large", f"the headers are larger than the limit of {self._limit:,} bytes")
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            raise Problem(400, "malformed-request", f"the query has more than {MOST_PARAMETERS:,} parameters")
        self._check_host(headers.getlist("host"), scope.get("http_version"))
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdecimal():
            raise Problem(400, "malformed-request", "the Content-Length header is not a number")

    def _check_host(self, hosts: Sequence[str], http_version: str | None) -> None:
        if not hosts and http_version == "1.0":
            return  # probes of load balancers; the check is against browsers, which always send the header
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
            raise Problem(400, "malformed-request", "the Host header is missing or malformed")
        if self._hosts and host_of(hosts[0]) not in self._hosts:
            raise Problem(421, "wrong-host", "this server does not serve the requested host")


def host_of(header: str) -> str:
    """Returns the name or address in a Host header in lower case, without port and brackets."""
    return re.sub(r":\d+$", "", header).strip("[]").lower()


class _Reply:
    """Sends a response with the request id and the default headers."""

    def __init__(self, send: Send, name: str, *, close: bool) -> None:
        self._send, self._name, self._close = send, name, close
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._name
            if self._close:
                headers["connection"] = "close"
            for header, value in HEADERS.items():
                headers.setdefault(header, value)
        await self._send(message)
