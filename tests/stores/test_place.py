"""The record of the servers of a store, from which `chargehand dashboard` takes the address."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from chargehand.host import place
from chargehand.processes import proc
from chargehand.stores import notes
from chargehand.stores.location import Location
from chargehand.testing import eventually
from paths import python_path

SERVER = """
import sys
from pathlib import Path
from chargehand.host import place
from chargehand.stores.location import Location
location = Location(Path(sys.argv[1]))
print(place.keep(location, sys.argv[2]), flush=True)
if sys.stdin.readline():
    place.forget(location)
"""


class Server:
    """A process that records a URL, and removes it when it stops."""

    def __init__(self, location: Location, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(location.path), url],
            env={**os.environ, "PYTHONPATH": python_path()}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout
        self.is_first = self.process.stdout.readline() == "True\n"

    def stop(self) -> None:
        self.process.communicate("stop\n")
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def location(folder: Path) -> Location:
    return Location(folder / "store.db")


@pytest.fixture
def start(location: Location) -> Iterator[Callable[[str], Server]]:
    started: list[Server] = []

    def begin(url: str) -> Server:
        started.append(Server(location, url))
        return started[-1]

    yield begin
    for server in started:
        server.kill()


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_a_server_is_found_again_after_a_later_one_has_ended(  # spec: CL-6
    location: Location, start: Callable[[str], Server], end: Callable[[Server], None]
) -> None:
    servers = [start(f"http://127.0.0.1:{port}") for port in (1, 2, 3)]
    assert [server.is_first for server in servers] == [True, True, True]
    assert place.find(location) == "http://127.0.0.1:3"
    end(servers[1])
    assert place.find(location) == "http://127.0.0.1:3"
    end(servers[2])
    assert place.find(location) == "http://127.0.0.1:1"
    end(servers[0])
    assert place.find(location) is None
    assert location.site.exists() is (end is Server.kill)


def test_one_of_the_processes_of_a_server_may_end(  # spec: CL-6
    location: Location, start: Callable[[str], Server]
) -> None:
    first, second = start("http://127.0.0.1:1"), start("http://127.0.0.1:1")
    assert (first.is_first, second.is_first) == (True, False)
    first.stop()
    assert place.find(location) == "http://127.0.0.1:1"


def test_a_record_of_an_earlier_version_is_read_and_kept(location: Location, start: Callable[[str], Server]) -> None:
    found = proc.stat(os.getpid())
    assert found
    old = {"url": "http://127.0.0.1:1", "pid": os.getpid(), "start": found.start}
    notes.keep(location.site, lambda found: False, lambda: msgspec.json.encode(old).decode())
    assert place.find(location) == "http://127.0.0.1:1"
    later = start("http://127.0.0.1:2")
    assert msgspec.json.decode(location.site.read_bytes())["url"] == "http://127.0.0.1:2"
    later.stop()
    assert place.find(location) == "http://127.0.0.1:1"
    place.forget(location)
    assert not location.site.exists()


def test_many_processes_fit_into_the_record(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "alive", lambda pid, start: True)
    for pid in range(1_000_000, 1_000_300):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        place.keep(location, f"http://[2001:db8::1]:65535/a/long/prefix/{pid}")
    for pid in reversed(range(1_000_000, 1_000_300)):
        assert place.find(location) == f"http://[2001:db8::1]:65535/a/long/prefix/{pid}"
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        place.forget(location)
    assert place.find(location) is None


def test_a_text_is_not_written_into_a_file_that_was_deleted(location: Location) -> None:
    """A server starts while the last other one removes its record."""
    writing = threading.Thread(target=notes.change, args=(location.site, lambda found: f"{found}new"))

    def delete(found: str) -> str:
        writing.start()  # waits for the lock
        waits = f":{location.site.stat().st_ino} "
        eventually(lambda: any("->" in line and waits in line for line in Path("/proc/locks").read_text().splitlines()))
        return ""

    notes.change(location.site, delete)
    writing.join(10)
    assert notes.read(location.site) == "new"
