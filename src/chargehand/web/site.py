"""The state that all requests of one API process share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from chargehand import clock, log
from chargehand.doctor import examine
from chargehand.errors import ChargehandError
from chargehand.host import nodelock
from chargehand.model.access import Deed
from chargehand.model.doctor.diagnosis import Diagnosis
from chargehand.model.origin import BAD_SIGN_INS, BadSignIns, networks, origin_of
from chargehand.web.answers import Readiness
from chargehand.web.keyring import Keyring
from chargehand.web.metrics import gather
from chargehand.web.summaries import readiness_of
from chargehand.web.threads import Cached, ThreadPool

if TYPE_CHECKING:
    from starlette.requests import Request

    from chargehand.app import Chargehand

PROBE_LIMIT = 2.0
"""Seconds after which a probe stops waiting for the store."""
DOCTOR_LIMIT = examine.PATIENCE + 4
"""Seconds that a diagnosis may take."""
TOO_MANY = f"{BAD_SIGN_INS} bad sign-ins within a minute"
MOST_LOGGED = 100
"""Bad sign-ins, and requests with bad keys, that the operator log takes in a minute from all origins together."""
MAX_AGE = 1.0
"""Seconds for which a result is cached."""


class Site:
    """The state of one Chargehand in an API process."""

    def __init__(self, hand: "Chargehand", prefix: str, *, address: str | None = None, aloud: bool = True) -> None:
        self.hand, self.prefix = hand, prefix
        self.address = address
        """The URL of the server, if it is ours: then the address of a client is that of its connection."""
        self.aloud = aloud
        """Whether the address of the dashboard is printed or logged at the start."""
        self.guards_app = False
        """Whether routes of the application use these keys, too: then the session cookie is sent to them."""
        self._trusted = networks(hand.settings.trusted_proxies)
        self._bad_sign_ins = BadSignIns()
        self._bad_everywhere = BadSignIns(most=MOST_LOGGED)
        self._bad_keys = BadSignIns(most=1)
        """Not counted with sign-ins: a program with an old key must not slow down the sign-ins of its neighbours."""
        self._bad_keys_everywhere = BadSignIns(most=MOST_LOGGED)
        self.closing = asyncio.Event()
        """Set when the server is about to stop; all streams then end."""
        self._opened = False
        self._waiting: set[asyncio.Timeout] = set()
        self.in_thread = ThreadPool()
        """Runs blocking calls to the store and the node."""
        self.keyring = Keyring(hand, self.in_thread)
        self._prober = ThreadPool(threads=1, waiting=0, limit=PROBE_LIMIT)  # not delayed by hung requests
        self.probe = Cached(lambda: self._prober(hand.internal.probe), MAX_AGE, clock.monotonic)
        """Checks that the store can be written."""
        self.facts = Cached(lambda: gather(hand, self.in_thread, self.events_dropped()), MAX_AGE, clock.monotonic)
        """The facts for the metrics."""
        self.readiness = Cached(lambda: self.in_thread(self.ready), MAX_AGE / 2, clock.monotonic)
        """Whether jobs are performed; cached for callers without a key, of whom there may be many."""
        self.diagnosis = Cached(self._examine, MAX_AGE, clock.monotonic)
        """The diagnosis; at most one runs at a time, and who wants a new one takes `get_newer`."""
        # Cookies are shared by all ports of a host: the name differs for each store.
        self.cookie = f"chargehand_{sha256(str(hand.location).encode()).hexdigest()[:8]}"

    def ready(self) -> Readiness:
        """Returns whether jobs are performed, from the node and the store."""
        status = self.hand.internal.node_status()
        holder = None if status is not None else nodelock.holder(nodelock.nearest(self.hand.location))
        others = self.hand.internal.elsewhere(status)
        return readiness_of(self.hand.internal.known_crews(living=True), status, holder, self.hand.pauses(), others)

    async def _examine(self) -> Diagnosis:
        return await self.in_thread(lambda: examine.examine(self.hand), DOCTOR_LIMIT)

    def origin_of(self, request: "Request") -> str:
        """Returns from where a request came, for the operator log. Nothing is allowed because of it."""
        peer = request.client.host if request.client is not None else None
        ours = self.address is not None and not self._trusted
        return f"http {origin_of(peer, () if ours else request.headers.getlist('x-forwarded-for'), self._trusted)}"

    def sign_in_wait(self, origin: str) -> float:
        """Returns in how many seconds sign-ins from this origin are checked again; 0 if now."""
        return self._bad_sign_ins.wait(origin.removeprefix("http "), clock.monotonic())

    async def sign_in_failed(self, origin: str, why: str) -> None:
        """Counts a bad sign-in, and writes it to the operator log."""
        now = clock.monotonic()
        found = self._bad_sign_ins.failed(origin.removeprefix("http "), now)
        deeds: list[Deed] = []
        if found.logged and self._bad_everywhere.failed("", now).logged:
            deeds.append(Deed(who="unknown", verb="sign in refused", detail=why, origin=origin))
        if found.begins:
            log.warning("too many bad sign-ins; more are refused for a minute", origin=origin)
            deeds.append(Deed(who="unknown", verb="sign-ins slowed down", detail=TOO_MANY, origin=origin))
        await self._log(deeds)

    async def key_refused(self, origin: str, why: str) -> None:
        """Writes a request with a bad key to the operator log, once a minute for each origin."""
        now = clock.monotonic()
        found = self._bad_keys.failed(origin.removeprefix("http "), now)
        if found.logged and self._bad_keys_everywhere.failed("", now).logged:
            await self._log([Deed(who="unknown", verb="key refused", detail=why, origin=origin)])

    async def _log(self, deeds: list[Deed]) -> None:
        """Writes to the operator log; a request that is refused anyway does not fail because this does."""
        if not deeds:
            return
        try:
            await self.in_thread(lambda: self.hand.internal.keys.log(deeds))
        except ChargehandError as error:
            log.warning("the operator log could not be written", why=error)

    def events_dropped(self) -> int:
        """Returns the number of events that were dropped because clients of this process were too slow."""
        return self.hand.internal.feed().broker.dropped

    def open(self) -> None:
        """Prepares for the start of a server: an asyncio.Event belongs to one event loop."""
        self.closing = asyncio.Event()
        self._opened = True

    def check_opened(self) -> None:
        """Logs once, at the first request, that the lifespan of the application did not run: then no node runs."""
        if self._opened:
            return
        self._opened = True
        settings = self.hand.settings
        if settings.embed_workers:
            log.configure_if_unset(self.hand.log_level, settings.log)
            log.warning(
                "this process started no node and no workers: the lifespan of the application did not run",
                prefix=self.prefix,
                remedy="attach to the application that the server runs, not to one that is mounted in it, and do not "
                "switch its lifespan off (in a test, use `with TestClient(app)`); or set EMBED_WORKERS=false, and run "
                "`chargehand work APP`",
            )

    def close(self) -> None:
        """Ends streams, and stops waiting for clients, because the server is about to stop."""
        self.closing.set()
        for timeout in self._waiting:
            if not timeout.expired():
                timeout.reschedule(0)

    @asynccontextmanager
    async def until_closing(self, seconds: float) -> AsyncGenerator[None]:
        """Raises TimeoutError in the block after that time, or when the server is about to stop."""
        async with asyncio.timeout(0 if self.closing.is_set() else seconds) as timeout:
            self._waiting.add(timeout)
            try:
                yield
            finally:
                self._waiting.discard(timeout)
