"""Starts a node, watches it, starts another when it exits, and stops it gracefully.

A host runs in one thread and does not use the store or the workers. If its process dies, its end of the socket to the
node (the tether) closes, and the node stops. A process that does nothing else loads this module (`alone`), so it
imports little, and the rest when a node has failed.
"""

import os
import select
import signal
import socket
import threading
from contextlib import suppress
from typing import NamedTuple

from chargehand import clock, log
from chargehand.errors import EXIT_STORE, ChargehandError
from chargehand.host import nodelock
from chargehand.host.brief import Brief
from chargehand.processes import proc
from chargehand.processes.child import Child, launch
from chargehand.protocol.frame import Decoder, Frame
from chargehand.settings.names import ADMIN_KEY
from chargehand.system import forks, notify
from chargehand.system.linux import require_linux

STANDBY_POLL = 0.5
"""Seconds between two attempts to take the lock while the node of another host serves the store."""
STOP_MARGIN = 10.0
"""Seconds after the grace period of the workers after which a node that was asked to stop is killed."""
KILL_TIMEOUT = 3.0
"""Seconds that a node has to kill its workers, before it is killed itself."""
SHORT_LIFE = 10.0
DEATHS_WINDOW = 300.0
"""Seconds in which the exits of nodes are counted, for people."""
LONGEST_PAUSE = 30.0
ANNOUNCED = 0.3
"""Seconds from which on a pause before the next node is announced."""


class Failed(NamedTuple):
    """The exit code and the reason of a node that could not start."""

    code: int
    why: str


class Host:
    """Keeps one node running for a store, or waits while another host runs one."""

    def __init__(self, brief: Brief, *, give_up: bool = False) -> None:
        require_linux()
        self._brief, self._give_up = brief, give_up
        self._store = brief.store
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="chargehand-host", daemon=True)
        self._stopping = self._killing = False
        self._served = False
        """Whether a node of this host has been ready."""
        self._drained = False
        """Whether the node has ended because an operator drained it and asked for its end."""
        self._deaths: list[float] = []
        """When nodes of this host have exited, lately."""
        self._last = ""
        self._awaited: int | None = None
        """The pid of the other host's node for whose end this host waits, once it is logged."""
        self.ready = threading.Event()
        """Set while the node of this host is ready."""
        self.ended = threading.Event()
        """Set when the thread has ended, and in every forked process."""
        self._notifier = notify.current()
        self._sign_at: float | None = None
        """When (monotonic) the node is asked next whether it lives, for a service manager that waits for the answer."""
        self.failed: Failed | None = None
        self.node_pid: int | None = None
        forks.in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Leaves the node to the parent process."""
        self.ready, self.ended = threading.Event(), threading.Event()
        self.ended.set()
        self.close()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def begin_stop(self) -> None:
        """Makes the node stop gracefully: it takes no more jobs. Returns at once, also in a signal handler."""
        self._stopping = True
        if self._notifier is not None:
            self._notifier.stopping()
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def stop(self, timeout: float | None = None) -> bool:
        """Stops the node gracefully. Returns whether it has ended within the timeout."""
        self.begin_stop()
        return self.ended.wait(timeout)

    def kill(self) -> None:
        """Stops the node without waiting for running jobs."""
        self._killing = self._stopping = True
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Closes the last descriptor, once the thread has ended."""
        if self.ended.is_set() and self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def _run(self) -> None:
        try:
            pause = 0.0
            while not (self._stopping or self._drained):
                try:
                    lock = nodelock.take(self._store)
                    if lock is None:
                        self._stand_by()
                except (ChargehandError, OSError) as error:
                    self.failed = Failed(getattr(error, "exit_code", EXIT_STORE), str(error))
                    log.error("no node can be started", why=error)
                    if self._gives_up():
                        return
                    self._wait(LONGEST_PAUSE)
                    continue
                self.failed = None
                if lock is None:
                    self._wait(STANDBY_POLL)
                    continue
                self._awaited = None
                began = clock.monotonic()
                self._serve(lock)
                if self._gives_up():
                    return
                now = clock.monotonic()
                pause = 0.0 if now - began > SHORT_LIFE else min(max(2 * pause, 0.1), LONGEST_PAUSE)
                self._deaths = [when for when in self._deaths if when > now - DEATHS_WINDOW] + [now]
                self._pause(pause)
        except Exception:
            log.error("the host thread failed", trace=True)
        finally:
            self.ended.set()

    def _gives_up(self) -> bool:
        """Returns whether the last failure ends this host. A store that has been usable is waited for: its disk may be
        full, or its server may restart, in the moment in which the node dies."""
        if not self._give_up or self.failed is None:
            return False
        return not (self._served and self.failed.code == EXIT_STORE)

    def _stand_by(self) -> None:
        """Logs for which node this host waits, once for each, and which crews of this host that node does not have."""
        found = nodelock.holder(self._store) or {}
        pid = found.get("pid")  # unknown while its host starts it
        if pid in (None, self._awaited):
            return
        self._awaited = pid
        if self._notifier is not None:
            self._notifier.ready(f"waits for the end of the node with pid {pid}, which serves the store")
        log.info("another node serves this store; waiting", event=log.Event.NODE_STANDBY, store=self._store, pid=pid)
        own = self._brief.crews
        missing = [name for name in own if name not in found.get("crews", own)]  # a node of 0.1.0 does not name them
        if missing:
            log.warning(
                "the node that serves this store does not have all crews of this application: their jobs wait",
                event=log.Event.CREWS_UNSERVED,
                crews=", ".join(missing),
                pid=pid,
                store=self._store,
                remedy="give each application its own store"
                + (", or its node another name (NODE_NAME)" if self._store.in_state_folder else "")
                + ", or declare all crews in one application",
            )

    def _pause(self, seconds: float) -> None:
        """Waits before the next node is started, and says so in the lock file, for `chargehand doctor`."""
        if self._stopping or self._drained:
            return
        if seconds >= ANNOUNCED:
            self._announce(seconds)
        self._wait(seconds)
        if self._stopping and seconds >= ANNOUNCED:
            self._announce(None)

    def _announce(self, seconds: float | None) -> None:
        from chargehand.host import restart_plan

        plan = None
        if seconds is not None:
            found = proc.stat(os.getpid())
            plan = restart_plan.RestartPlan(
                host=os.getpid(), start=found.start if found else 0, deaths=len(self._deaths), window=DEATHS_WINDOW,
                last=self._last, at_ms=clock.now_ms() + int(seconds * 1000),
            )  # fmt: skip
        try:
            restart_plan.announce(self._store, plan)
        except (ChargehandError, OSError) as error:  # a full disk must not end the host
            log.warning("the pause before the next node cannot be announced", why=error)

    def _wait(self, seconds: float) -> None:
        """Waits without a node, for so long or until the host is to stop."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        until = clock.monotonic() + seconds
        while not self._stopping and (left := until - clock.monotonic()) > 0:
            every = self._notifier.every if self._notifier is not None else None
            if self._notifier is not None and every is not None:
                self._notifier.alive()
            if poller.poll(1000 * min(left, left if every is None else every)):
                return

    def _serve(self, lock: int) -> None:
        """Runs one node from its start to its exit."""
        self.failed = None
        child: Child | None = None
        try:
            ours, theirs = socket.socketpair()
            forks.close_in_child(ours)  # otherwise the node would outlive its host
            with ours, theirs:
                child = self._launch(theirs, lock)
                nodelock.release(lock)
                theirs.close()
                ours.sendall(b"PLAN|" + self._brief.plan + b"\n")
                self._watch(child, ours)
        except (BrokenPipeError, ConnectionResetError):
            log.warning("the node ended while its settings were sent")
        except OSError as error:  # no process, descriptor or disk space left: retried after a pause
            log.error("a node could not be started", why=error.strerror or error)
        finally:
            nodelock.release(lock)
            self.ready.clear()
            self.node_pid = None
            if child is not None:
                self._reap(child)

    def _launch(self, theirs: socket.socket, lock: int) -> Child:
        child = launch(
            f"from chargehand.node.main import main; main({theirs.fileno()}, {lock})",
            "node",
            mark="node",
            pass_fds=[theirs.fileno(), lock],
            env={name: text for name, text in os.environ.items() if name not in (ADMIN_KEY, *notify.NAMES)},
            name=f"node:{self._brief.node}",
        )
        self.node_pid = child.pid
        nodelock.sign(lock, child.pid, self._brief.node, self._brief.crews, str(self._store))
        return child

    def _reap(self, child: Child) -> None:
        if not child.wait(0):
            child.signal(signal.SIGKILL)
            child.wait(STOP_MARGIN)
        ending = child.exit()
        child.close()
        if not (self._stopping or self._drained):
            code, number = ending or (None, None)
            self._last = f"signal {number}" if number else f"exit code {code}"
            log.warning("node ended", event=log.Event.NODE_EXITED, pid=child.pid, exit_code=code, signal=number)
        elif ending != (0, None):
            self._sweep()

    def _sweep(self) -> None:
        """Ends the processes that a killed node has left behind, because no other node will end them."""
        from chargehand.processes.record import ProcessRecord

        lock = nodelock.take(self._store)
        if lock is not None:
            record = ProcessRecord(self._store.lives, self._store.mark)
            record.end_earlier(KILL_TIMEOUT)
            record.stopping()
            nodelock.release(lock)

    def _watch(self, child: Child, tether: socket.socket) -> None:
        poller = select.poll()
        for descriptor in (child.pidfd, tether.fileno(), self._wake):
            poller.register(descriptor, select.POLLIN)
        decoder = Decoder(1 << 20)
        limit: float | None = None
        kill_sent = False
        self._sign_at = clock.monotonic() if self._notifier is not None and self._notifier.every is not None else None
        while True:
            soonest = min((each for each in (limit, self._sign_at) if each is not None), default=None)
            timeout = None if soonest is None else max(0.0, soonest - clock.monotonic()) * 1000 + 1
            events = {descriptor for descriptor, _ in poller.poll(timeout)}
            if self._wake in events:
                os.eventfd_read(self._wake)
            if self._killing and not kill_sent:
                kill_sent, limit = True, clock.monotonic() + KILL_TIMEOUT
                tether.sendall(b"KILL|{}\n")
            elif self._stopping and limit is None:
                limit = clock.monotonic() + self._stop_limit()
                tether.sendall(b"STOP|{}\n")
            if limit is not None and clock.monotonic() >= limit:
                log.warning("node killed", pid=child.pid)
                child.signal(signal.SIGKILL)
                limit = clock.monotonic() + KILL_TIMEOUT
            self._ask_for_sign(tether)
            if tether.fileno() in events:
                data = tether.recv(1 << 16)
                if not data:
                    poller.unregister(tether)
                for frame in decoder.feed(data):
                    if isinstance(frame, Frame):
                        self._receive(frame)
            if child.pidfd in events:
                return

    def _ask_for_sign(self, tether: socket.socket) -> None:
        """Asks the node, when it is time, for the sign of life that a service manager waits for."""
        now = clock.monotonic()
        if self._sign_at is None or now < self._sign_at or self._notifier is None:
            return
        self._sign_at = now + (self._notifier.every or 0)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has exited, which its pidfd reports
            tether.sendall(b"PING|{}\n")
        if self._stopping or not self.ready.is_set():
            self._notifier.alive()  # a node that starts or stops has limits of its own

    def _stop_limit(self) -> float:
        return self._brief.stop_limit + STOP_MARGIN

    def _receive(self, frame: Frame) -> None:
        if frame.kind == "READY":
            self.ready.set()
            self._served = True
            if self._notifier is not None:
                self._notifier.ready(f"node {self._brief.node} (pid {self.node_pid}) works")
        elif frame.kind == "PONG" and self._notifier is not None:
            self._notifier.alive()
        elif frame.kind == "FAILED":
            self.failed = Failed(**frame.read())
        elif frame.kind == "DRAINED":
            self._drained = True
            log.info("the node was drained and ends; no other is started", event=log.Event.NODE_DRAINED)
