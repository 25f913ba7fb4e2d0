"""Measures Adreel: the cost of a film by stage, of its workers, of the flow around the stages, and of an upload.

This process imports nothing heavy: films are made and analysed in other processes. `python -m bench Adreel` measures
only these rows.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from adreel import crews, settings
from adreel.catalogue import Catalogue
from adreel.records import STAGES
from adreel.service import Service
from bench.processes import cpu, free_port, peak
from bench.row import Row, measures, p50
from bench.scene import ended, folder, interpreter
from chargehand import Chargehand, clock
from chargehand.testing import eventually

FILM = """
import sys
from pathlib import Path
from adreel.synth import Card, advert
colours = ((18, 30, 74), (150, 42, 32), (20, 80, 40), (90, 20, 90), (10, 90, 150), (60, 60, 60))
lines = (("NORDLYS", "running shoes"), ("Fresh pizza", "delivered tonight"), ("Cheap flights", "to the sun"))
cards = [Card(2.5, lines[n % 3], paper=colour) for n, colour in enumerate(2 * colours)]
advert(Path(sys.argv[1]), cards, size=(1280, 720))
"""
SECONDS = 30.0
"""The length of the film: twelve scenes of 1280 × 720 pixels."""
FILMS, ROUNDS, STARTS = 4, 5, 3
PATIENCE = 900.0
KEY = "the-key-of-the-benchmark-of-adreel"
GIGABYTE, PIECE = 1 << 30, 1 << 20
HEAD = b"\x00\x00\x00\x18ftypisom" + bytes(8192)
"""The beginning of a film, as far as an upload looks at it."""
DECLARED = {"frames": crews.DECODING, "ocr": crews.READING, "classify": crews.CLASSIFYING}
"""The memory that a worker of a crew is declared to need."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Analyst:
    """Adreel with warm workers."""

    service: Service
    film: Path

    def analyse(self, films: int) -> float:
        """Analyses copies of the film, submitted together. Returns the seconds until the last has ended."""
        began = clock.now_ms()
        ids = [self.service.submit_path(str(self.film)).id for _ in range(films)]
        flows = [self.service.crews.hand.find_flow(self.service.row(each).flow) for each in ids]
        for flow in flows:
            flow.wait(PATIENCE)
        return (max(flow.status().ended_ms or 0 for flow in flows) - began) / 1000

    def pids(self) -> dict[str, int]:
        """Returns the process of the first worker of each stage."""
        status = self.service.crews.hand.status() or {"workers": []}
        return {w["crew"]: int(w["pid"]) for w in reversed(status["workers"]) if w["pid"]}


@contextmanager
def _analyst(home: Path, film: Path, readers: int) -> Generator[Analyst]:
    """Runs Adreel with so many workers that read text, and analyses a film, so that all models are loaded."""
    found = settings.read({"ADREEL_HOME": str(home), "ADREEL_ROOTS": str(film.parent), "ADREEL_MIN_FREE": "1"})
    home.mkdir()
    hand = Chargehand(home / crews.STORE)
    hand.log_level = "ERROR"
    built = crews.declare(hand, readers=readers, environment=found.environment())
    analyst = Analyst(Service(found, built, Catalogue(hand)), film)
    with hand.running():
        analyst.analyse(readers)
        yield analyst
    hand.close()


@contextmanager
def _film() -> Generator[tuple[Path, Path]]:
    """Makes the film. Yields the folder of the measurement, and the film."""
    with folder() as here:
        (here / "films").mkdir()
        film = here / "films" / "film.mp4"
        subprocess.run([sys.executable, "-c", FILM, str(film)], check=True)
        yield here, film


@measures(
    *(f"Adreel: CPU for a minute of film, {stage}" for stage in STAGES),
    *(f"Adreel: memory of a worker, {stage}" for stage in DECLARED),
    "Adreel: minutes of film a minute, one reader", "Adreel: minutes of film a minute, two readers",
    "Adreel: two readers against one",
)  # fmt: skip
def analysing() -> Iterable[Row]:
    """Advertisements, submitted together: one worker for each stage, and then a second one that reads text."""
    with _film() as (here, film):
        with _analyst(here / "one", film, 1) as analyst:
            pids = analyst.pids()
            before = {stage: sum(cpu(pids[stage])) for stage in STAGES}
            alone = analyst.analyse(FILMS)
            used = {stage: sum(cpu(pids[stage])) - before[stage] for stage in STAGES}
            memory = {stage: peak(pids[stage]) for stage in DECLARED}
        with _analyst(here / "two", film, 2) as analyst:
            both = analyst.analyse(FILMS)
    note = f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"
    minutes = FILMS * SECONDS / 60
    for stage in STAGES:
        yield Row(f"Adreel: CPU for a minute of film, {stage}", used[stage] / minutes, "s", None, None, note=note)
    for stage, declared in DECLARED.items():
        yield Row(f"Adreel: memory of a worker, {stage}", memory[stage], "MiB", None, declared / MIB)
    yield Row("Adreel: minutes of film a minute, one reader", 60 * minutes / alone, "min", None, None, note=note)
    yield Row("Adreel: minutes of film a minute, two readers", 60 * minutes / both, "min", None, None, note=note)
    yield Row("Adreel: two readers against one", alone / both, "×", None, None, more_is_better=True, note=note)


@measures("Adreel: a film in a flow above one plain function")
def overhead() -> Iterable[Row]:
    """One film at a time: through the service, and with all stages in one function of one process, in turn."""
    with _film() as (here, film):
        plain = interpreter("-m", "bench.plain", str(here), str(film))
        try:
            _said(plain)  # the models are loaded
            with _analyst(here / "home", film, 1) as analyst:
                _alone(plain)
                pairs = [(_alone(plain), analyst.analyse(1)) for _ in range(ROUNDS)]
        finally:
            ended(plain)
    function, flow = (p50(each) for each in zip(*pairs, strict=True))
    note = f"{flow:.2f} s and {function:.2f} s, load {os.getloadavg()[0]:.1f}"
    name = "Adreel: a film in a flow above one plain function"
    yield Row(name, 100 * (flow / function - 1), "%", None, 5.0, note=note)


def _alone(plain: "subprocess.Popen[bytes]") -> float:
    """Returns the seconds of one analysis in one function."""
    assert plain.stdin is not None
    plain.stdin.write(b"\n")
    plain.stdin.flush()
    return float(_said(plain))


def _said(plain: "subprocess.Popen[bytes]") -> str:
    assert plain.stdout is not None
    if not (line := plain.stdout.readline()):
        raise RuntimeError("the process with all stages in one function has ended")
    return line.decode().strip()


@dataclass(frozen=True, slots=True)
class Served:
    """A server of Adreel."""

    process: "subprocess.Popen[bytes]"
    client: httpx.Client

    def answers(self) -> bool:
        """Returns whether it serves."""
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def ready(self) -> bool:
        """Returns whether every worker has loaded its models."""
        answer = self.client.get("/diagnostics/concurrency")
        workers = answer.json()["workers"] if answer.status_code == 200 else []
        return bool(workers) and all(each["status"] == "healthy" for each in workers)


@contextmanager
def _served(home: Path, **environment: str) -> Generator[Served]:
    """Starts `uvicorn adreel.app:app` on a data folder."""
    port = free_port()
    own = {"ADREEL_HOME": str(home), "CHARGEHAND_ADMIN_KEY": KEY, "ADREEL_MIN_FREE": "1", "WORKER_PROCESSES": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "adreel.app:app", "--port", str(port), "--log-level", "critical"],
        env={**os.environ, **own, **environment}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    base, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE, trust_env=False) as client:
        try:
            yield Served(process, client)
        finally:
            process.terminate()
            process.wait()


@measures("Adreel: start to answer", "Adreel: start to six workers ready")
def starting() -> Iterable[Row]:
    """From the start of the command: until it answers, and until every worker has loaded its models."""
    answered: list[float] = []
    ready: list[float] = []
    with folder() as here:
        for number in range(STARTS):
            began = clock.monotonic()
            with _served(here / str(number)) as served:
                eventually(served.answers, PATIENCE)
                answered.append(clock.monotonic() - began)
                eventually(served.ready, PATIENCE)
                ready.append(clock.monotonic() - began)
    yield Row("Adreel: start to answer", p50(answered), "s", None, None)
    yield Row("Adreel: start to six workers ready", p50(ready), "s", None, None)


@measures("Adreel: upload of 1 GB", "Adreel: memory for an upload of 1 GB")
def uploading() -> Iterable[Row]:
    """One upload after a small one; the limit is a file of the same size that is written and synced."""
    with folder() as here:
        limit = _write(here / "plain")
        with _served(here / "home", EMBED_WORKERS="false") as served:
            eventually(served.answers, PATIENCE)
            _upload(served, PIECE)
            before, began = peak(served.process.pid), clock.monotonic()
            _upload(served, GIGABYTE)
            rate = GIGABYTE / MIB / (clock.monotonic() - began)
            more = peak(served.process.pid) - before
    note = "HTTP in Python: parsing of the body, and copies of its parts"
    yield Row("Adreel: upload of 1 GB", rate, "MiB/s", GIGABYTE / MIB / limit, None, more_is_better=True, note=note)
    yield Row("Adreel: memory for an upload of 1 GB", more, "MiB", None, 32.0)


def _upload(served: Served, size: int) -> None:
    answer = served.client.post("/jobs", content=_pieces(size), headers={"Content-Type": "video/mp4"})
    assert answer.status_code == 202, answer.text


def _pieces(size: int) -> Iterator[bytes]:
    yield HEAD
    piece = bytes(PIECE)
    for _ in range(size // PIECE):
        yield piece


def _write(path: Path) -> float:
    """Returns the seconds that it takes to write such a file."""
    began = clock.monotonic()
    with path.open("wb") as file:
        for piece in _pieces(GIGABYTE):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    return clock.monotonic() - began
