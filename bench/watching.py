"""Measures the cost of subscribers, and how soon a client of the event stream receives an event."""

import json
import os
import random
import select
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any

import msgspec

from bench.hosting import CrewSpec, Spec
from bench.processes import cpu, free_port, pss
from bench.row import Row, measures, p50, p99
from bench.scene import PATIENCE, ended, folder, interpreter, stage
from chargehand import clock
from chargehand.live.bodies import WorkerBody
from chargehand.live.broker import Broker
from chargehand.model.status import Progress, RestartBudget
from chargehand.node.loop import Channel, Loop, one_by_one
from chargehand.node.subscribers import Subscribers
from chargehand.protocol.control import FRAME_LIMIT, Call, address_of
from chargehand.protocol.frame import BadFrame, Frame

KILLS = 50
PACE = 0.1
"""Seconds for a killed worker to restart and for the system to become idle again."""
SETTLE, SECONDS = 4.0, 20.0
WORKERS, CLIENTS, EVENTS, CROWDED = 1000, 200, 50, 10.0


@contextmanager
def served(spec: Spec) -> Generator[tuple["subprocess.Popen[bytes]", int, str]]:
    """Starts an API process that serves events; yields it, its port and its token."""
    port = free_port()
    process = interpreter("-m", "bench.serving", msgspec.json.encode(spec).decode(), str(port))
    try:
        assert process.stdout is not None
        ready, _, token = process.stdout.readline().decode().strip().partition("#token=")
        if ready != "ready":
            raise RuntimeError("the server did not start")
        yield process, port, token
    finally:
        ended(process)


class Client:
    """One client of the event stream."""

    def __init__(self, port: int, token: str, topics: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        head = f"GET /api/events?topics={topics} HTTP/1.1\r\nHost: localhost:{port}\r\n"
        head += f"Authorization: Bearer {token}\r\n\r\n"
        self.sock.sendall(head.encode())
        self._rest = b""
        self._told: deque[tuple[dict[str, Any], int]] = deque()

    def hear(self) -> list[dict[str, Any]]:
        """Yields the next events."""
        data = self.sock.recv(1 << 16)
        if not data:
            raise EOFError("the stream has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]

    def until(self, well: bool, pid: int = 0) -> int:
        """Waits for an event in which the worker is healthy or not (and has another pid); returns the time in ns."""
        while True:
            while self._told:
                worker, at = self._told.popleft()
                if (worker["status"] == "healthy") is well and worker["pid"] != pid:
                    return at
            heard = self.hear()
            at = monotonic_ns()
            self._told += [(event["worker"], at) for event in heard if event["type"] == "worker_update"]


@measures("kill to event at a client, p50", "kill to event at a client, p99")
def kill_to_event() -> Iterable[Row]:
    """Measures from the signal to the line in our socket, through the kernel, the node, the API process and HTTP."""
    took: list[float] = []
    with stage(CrewSpec("nothing", "Nothing", 1), pause=PACE) as on, served(on.spec) as (_, port, token):
        client = Client(port, token, "worker:*:status")
        client.until(True)
        for _ in range(KILLS):
            clock.sleep(PACE + random.random() / 10)
            (_, (pid,)) = on.pids()
            began = monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            took.append((client.until(False) - began) / 1e6)
            client.until(True, pid)
        client.sock.close()
    yield Row("kill to event at a client, p50", p50(took), "ms", None, 50.0)
    yield Row("kill to event at a client, p99", p99(took), "ms", None, 50.0, note="two more processes must be woken")


@measures("idle CPU of being watched")
def idle_watched() -> Iterable[Row]:
    """Measures the additional CPU use of node, two workers and API process with one idle subscriber."""
    heard = 0
    with stage(CrewSpec("nothing", "Nothing", 2)) as on, served(on.spec) as (api, port, token):
        node, workers = on.pids()
        pids = (node, api.pid, *workers)
        clock.sleep(SETTLE)
        alone = _used(pids)
        client = Client(port, token, "queue:status,queue:*:status,worker:*:status,system:health")
        client.until(True)
        clock.sleep(SETTLE)
        while select.select([client.sock], [], [], 0)[0]:
            client.hear()
        watched = _used(pids)
        while select.select([client.sock], [], [], 0)[0]:
            heard += len(client.hear())
        client.sock.close()
    note = f"node {watched[0]:.3f} % instead of {alone[0]:.3f}, API {watched[1]:.3f} % instead of {alone[1]:.3f}; "
    note += f"{heard} events"
    yield Row("idle CPU of being watched", sum(watched) - sum(alone), "% of a core", 0.0, 0.1, note=note)


def _used(pids: Iterable[int]) -> list[float]:
    """Returns the per cent of a core that each process uses for a while."""
    began, before = clock.monotonic(), [sum(cpu(pid)) for pid in pids]
    clock.sleep(SECONDS)
    took = clock.monotonic() - began
    return [(sum(cpu(pid)) - then) / took * 100 for pid, then in zip(pids, before, strict=True)]


class Pretender(threading.Thread):
    """Simulates a node with a thousand workers whose states change at a given rate."""

    looked = 0

    def __init__(self, store: Path, rate: float = EVENTS) -> None:
        super().__init__(daemon=True)
        self._rate = rate
        self.broker, self._over = Broker("pretended"), threading.Event()
        self._loop, self._outlets = Loop(), Subscribers(self)  # type: ignore[arg-type]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with address_of(Path(f"{store}-sock")) as address:
            self._listener.bind(address)
        self._listener.listen()
        self._loop.add(self._listener.fileno(), self._accept)
        self.watched = False
        for number in range(WORKERS):
            self._change(number, 0)

    def watch(self, patterns: Any, now: float) -> int:
        """Called when a subscriber connects."""
        self.watched = patterns is not None
        return 0

    def _accept(self, _: int) -> None:
        Channel(
            self._loop, self._listener.accept()[0], FRAME_LIMIT, one_by_one(self._called), self._outlets.unsubscribe
        )

    def _called(self, channel: Channel, frame: Frame | BadFrame) -> None:
        assert isinstance(frame, Frame)
        if frame.kind == "SUBSCRIBE":
            self._outlets.subscribe(channel, msgspec.json.decode(frame.body, type=Call))

    def _change(self, number: int, done: int) -> None:
        name = f"worker:crowd:{number}:status"
        body = WorkerBody(
            component=f"worker:crowd:{number}", node="here", crew="crowd", index=number, status="healthy",
            pid=1000 + number, current_job=f"{number:032x}", progress=Progress(done=done, total=100),
            memory=300 << 20, budget=RestartBudget(5, 20),
        )  # fmt: skip
        self.broker.publish(name, name, "worker", body, clock.now_ms())

    def run(self) -> None:
        due, count = clock.monotonic(), 0
        while not self._over.is_set():
            self._loop.handle(self._loop.wait(max(0.0, due - clock.monotonic())))
            while self.watched and due <= clock.monotonic():
                count, due = count + 1, due + 1 / self._rate
                self._change(count % WORKERS, count)
            due = max(due, clock.monotonic()) if not self.watched else due
            self._outlets.send()

    def stop(self) -> None:
        """Closes everything."""
        self._over.set()
        self.join(PATIENCE)
        self._listener.close()


@measures("CPU of the API, 200 watch 1,000 workers", "memory of the API while they do")
def crowd() -> Iterable[Row]:
    """The node is simulated; the API process and its 200 sockets are real."""
    with folder() as path:
        spec = Spec(store=str(path / "bench.db"), crews=(CrewSpec("crowd", "Nothing", 1),))
        node = Pretender(Path(spec.store))
        node.start()
        with served(spec) as (api, port, token):
            clients = [Client(port, token, "worker:*:status") for _ in range(CLIENTS)]
            heard = _listen(clients, lambda heard: min(heard) >= WORKERS)
            clock.sleep(1.0)
            began, before, memory = clock.monotonic(), sum(cpu(api.pid)), pss([api.pid])
            heard = _listen(clients, lambda _: clock.monotonic() > began + CROWDED)
            took, used, grown = clock.monotonic() - began, sum(cpu(api.pid)) - before, pss([api.pid]) - memory
            for client in clients:
                client.sock.close()
        node.stop()
    each = sum(heard) / CLIENTS / took
    note = f"{each:.0f} events per second for each client, {sum(heard) / took:,.0f} in total"
    yield Row("CPU of the API, 200 watch 1,000 workers", used / took * 100, "% of a core", None, 25.0, note=note)
    yield Row("memory of the API while they do", grown, "MiB more", None, 4.0, note="the cost of one more subscriber")


def _listen(clients: list[Client], enough: Callable[[list[int]], bool]) -> list[int]:
    """Reads all clients until a condition holds; returns the number of events of each."""
    poller, by = select.epoll(), {client.sock.fileno(): number for number, client in enumerate(clients)}
    for descriptor in by:
        poller.register(descriptor, select.EPOLLIN)
    heard = [0] * len(clients)
    until = clock.monotonic() + PATIENCE
    while not enough(heard):
        if clock.monotonic() > until:
            raise TimeoutError(f"too few events: {min(heard)} to {max(heard)}")
        for descriptor, _ in poller.poll(0.1):
            heard[by[descriptor]] += len(clients[by[descriptor]].hear())
    poller.close()
    return heard
