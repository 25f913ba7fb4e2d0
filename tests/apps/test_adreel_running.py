"""Adreel's processes: embedded and separate workers, kills, restarts in the middle, a stop with open streams."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from adreelserver import MP4, Adreel, half_sent, incomplete

from chargehand.processes import proc
from chargehand.testing import eventually
from paths import HANDLERS

pytestmark = pytest.mark.full

Start = Callable[..., Adreel]
HEAVY = ("av", "cv2", "onnxruntime", "numpy", "PIL", "rapidocr")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Adreel] = []

    def server(*words: str, **environment: Any) -> Adreel:
        started.append(Adreel(tmp_path, *words, **{"WORKER_PROCESSES": "1", "ADREEL_MIN_FREE": "1", **environment}))
        return started[-1]

    yield server
    for each in reversed(started):
        each.close()


def worker(start: Start, **environment: str) -> Adreel:
    """`python -m adreel.worker`, with the stages of the tests."""
    return start(command="chargehand work adreel_gated:hand", **environment)


def test_a_deletion_is_completed_after_the_death_of_everything(start: Start) -> None:  # spec: AR-8
    first = start(CHARGEHAND_GRACE="600").ready()
    first.close_gate("frames")
    film = first.upload("stubborn.mp4")["id"]
    first.waits_at("frames")
    row = first.row(film)
    assert first.delete(film) == 202
    pids = first.left()
    for pid in pids:
        with suppress(ProcessLookupError):  # workers end with their node
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not first.left(), what="everything is dead")
    assert first.service.films.get(film) is not None  # the wish is on record
    second = start(CHARGEHAND_GRACE="1").ready()
    eventually(lambda: second.is_gone(row), 60, what="nothing is left")


def test_what_a_killed_server_has_received_in_part_is_removed_at_the_next_start(start: Start) -> None:  # spec: AR-5
    first = start(EMBED_WORKERS="false").ready()
    with half_sent(first):
        eventually(lambda: len(incomplete(first)) == 1, what="the upload arrives")
        orphan = first.home / "films" / ("0" * 21)
        orphan.mkdir(parents=True)
        (orphan / "source.mp4").write_bytes(MP4)
        second = start(EMBED_WORKERS="false").ready()
        assert len(incomplete(first)) == 1  # another process is receiving it
        assert not orphan.exists()
        second.signal(signal.SIGTERM)
        second.ended()
        first.signal(signal.SIGKILL)
        first.process.wait()
    assert len(incomplete(first)) == 1
    start(EMBED_WORKERS="false").ready()
    assert incomplete(first) == []


def test_without_embedded_workers_films_wait_for_the_other_command(start: Start) -> None:  # spec: CF-2 AR-2 AR-6
    server = start(EMBED_WORKERS="false").ready()
    film = server.upload()["id"]
    assert "embedded workers disabled: jobs wait for `python -m adreel.worker`" in server.log.read_text()
    assert [proc.stat(pid) is not None for pid in server.left()] == [True]  # the API alone
    assert server.get(film)["status"] == "queued"
    row = server.row(film)
    other = worker(start)
    assert server.ends(film)["status"] == "done"
    # one worker for each crew; that of upkeep may start after the film is done, and rows are written later
    eventually(lambda: server.http.get("/diagnostics/concurrency").json()["running"] == 7 - 1, what="all workers")
    assert server.http.get("/diagnostics/concurrency").json()["embedded"] is False
    assert server.delete(film) == 204
    assert server.is_gone(row)
    other.signal(signal.SIGTERM)
    assert other.ended() == 0


def test_a_worker_command_beside_an_embedded_api_waits_for_its_turn_and_says_so(start: Start) -> None:  # spec: SV-11
    server = start().ready()
    eventually(lambda: "6 embedded workers active" in server.log.read_text(), 30, what="the start line")
    other = worker(start)
    eventually(lambda: "event=node-standby" in other.log.read_text(), 30, what="it says that it waits")
    film = server.upload()["id"]
    assert server.ends(film)["status"] == "done"
    server.signal(signal.SIGKILL)
    eventually(lambda: (other.hand.status() or {}).get("workers"), 60, what="the other command works")
    other.signal(signal.SIGTERM)
    assert other.ended() == 0


def test_the_worker_command_is_that_of_chargehand(tmp_path: Path) -> None:  # spec: AR-5
    environment = {**os.environ, "ADREEL_HOME": str(tmp_path), "PYTHONPATH": str(HANDLERS)}
    done = subprocess.run(
        [sys.executable, "-m", "adreel.worker", "--help"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "chargehand work" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    "command", ["uvicorn adreel.app:app --port 0", "adreel.worker", "adreel serve", "adreel status"]
)
@pytest.mark.parametrize(("name", "wrong"), [("ADREEL_MAX_UPLOAD", "much"), ("EMBED_WORKERS", "perhaps")])
def test_a_wrong_setting_ends_every_command_in_words(  # spec: CF-1 AR-6
    tmp_path: Path, command: str, name: str, wrong: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "ADREEL_HOME": str(tmp_path), name: wrong},
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert f"{name} is '{wrong}' (in the environment); must be " in done.stderr


def test_several_api_processes_have_one_node_and_answer_alike(start: Start) -> None:  # spec: SV-11
    server = start("--workers", "4").ready()
    eventually(lambda: "6 embedded workers active" in server.log.read_text(), 30, what="the start line")
    eventually(lambda: "of another process" in server.log.read_text(), 30, what="the others say so")
    films = [server.upload(f"{number}.mp4")["id"] for number in range(4)]
    assert {server.ends(film)["status"] for film in films} == {"done"}
    assert server.log.read_text().count(" 6 embedded workers active") == 1


def in_mid_job(server: Adreel) -> str:
    """Uploads a film that stands in the stage frames."""
    server.ready()
    server.close_gate("frames")
    film = server.upload()["id"]
    server.waits_at("frames")
    return film


def ends_well_once(server: Adreel, film: str, *, interruptions: int) -> None:
    """The film is analysed to its end; each of its jobs was done once, and only the one in hand was interrupted."""
    server.open_gates()
    assert server.ends(film)["result"]["guess"]["category"] == "Travel"
    jobs = server.hand.find_flow(server.row(film).flow).jobs()
    assert sorted(job.queue for job in jobs) == ["classify", "frames", "ingest", "ocr", "ocr", "persist"]
    assert {(job.state, job.failures, job.crashes) for job in jobs} == {("done", 0, 0)}
    assert {job.queue: job.interruptions for job in jobs if job.interruptions} == (
        {"frames": interruptions} if interruptions else {}
    )


def test_a_reload_in_the_middle_of_a_film_loses_nothing(start: Start, tmp_path: Path) -> None:  # spec: SV-11
    (tmp_path / "reloaded.py").write_text("from adreel_gated import app\n")
    words = ("--reload", "--reload-dir", str(tmp_path), "--reload-include", "reloaded.py")
    server = start(*words, command="uvicorn reloaded:app", CHARGEHAND_GRACE="600")
    film = in_mid_job(server)
    node = (server.hand.status() or {})["pid"]
    (tmp_path / "reloaded.py").write_text("from adreel_gated import app  # changed\n")
    eventually(lambda: (server.hand.status() or {}).get("pid") not in (None, node), 60, what="another node")
    assert server.answers("/healthz") is not None
    ends_well_once(server, film, interruptions=1)


def test_ctrl_c_in_the_middle_of_a_film_loses_nothing(start: Start) -> None:  # spec: WP-6
    first = start(CHARGEHAND_GRACE="600")
    film = in_mid_job(first)
    first.ctrl_c()
    eventually(lambda: (first.hand.status() or {}).get("stopping"), what="the node stops")
    first.ctrl_c()  # a second one does not wait for the job
    assert first.ended() == 0
    ends_well_once(start().ready(), film, interruptions=1)


def test_a_film_goes_on_when_the_api_is_killed(start: Start) -> None:  # spec: WP-7
    first = start(CHARGEHAND_GRACE="600")
    film = in_mid_job(first)
    first.signal(signal.SIGKILL)
    first.open_gates()  # the worker finishes what it has
    first.ended()
    assert first.hand.claims() == []
    ends_well_once(start().ready(), film, interruptions=0)


def test_a_submit_command_waits_for_a_server_that_restarts(start: Start, tmp_path: Path) -> None:
    first = start(CHARGEHAND_GRACE="1")
    first.ready().close_gate("frames")
    film = tmp_path / "ad.mp4"
    film.write_bytes(MP4)
    own = {**first.environment, "ADREEL_PORT": str(first.port)}
    submit = subprocess.Popen(
        [sys.executable, "-m", "adreel", "submit", str(film)], env=own, stdout=subprocess.PIPE, text=True
    )
    first.waits_at("frames")
    eventually(lambda: "/events HTTP" in first.log.read_text(), what="the command follows the film")
    first.signal(signal.SIGTERM)
    first.process.wait(60)
    first.process = first.start("uvicorn", "adreel_gated:app", "--port", str(first.port))
    first.open_gates()
    said, _ = submit.communicate(timeout=60)
    assert (submit.returncode, "ad.mp4: Travel" in said) == (0, True)


def test_open_streams_and_uploads_do_not_keep_it_from_stopping(start: Start) -> None:  # spec: SE-6
    server = start(CHARGEHAND_GRACE="1").ready()
    server.close_gate("ingest")
    film = server.upload()["id"]
    server.waits_at("ingest")
    heard, ended = threading.Event(), threading.Event()

    def listen() -> None:
        with (
            httpx.Client(base_url=server.http.base_url, headers=server.http.headers, timeout=60) as client,
            client.stream("GET", f"/jobs/{film}/events") as answer,
        ):
            for _ in answer.iter_lines():
                heard.set()
        ended.set()

    listener = threading.Thread(target=listen)
    listener.start()
    assert heard.wait(30)
    with half_sent(server) as client:
        eventually(lambda: len(incomplete(server)) == 1, what="the upload arrives")
        server.signal(signal.SIGTERM)
        assert client.recv(12) == b"HTTP/1.1 503"
    server.ended()
    listener.join(20)
    assert ended.is_set()  # as a whole: a stream that was cut raises
    assert incomplete(server) == []
    assert server.service.get(film).status in ("queued", "running")


def test_an_upload_that_stalls_or_states_an_absurd_length_is_refused(start: Start) -> None:  # spec: SE-6
    server = start(EMBED_WORKERS="false", ADREEL_UPLOAD_STALL="0.3").ready()
    for size, status in ((1_000_000, b"408"), (10**20 - 1, b"413")):
        with half_sent(server, size) as client:
            assert client.recv(12) == b"HTTP/1.1 " + status
        eventually(lambda: incomplete(server) == [], what="what arrived is removed")


def test_the_api_imports_nothing_heavy(tmp_path: Path) -> None:  # spec: AR-3
    code = (
        "import sys, adreel.app, adreel.cli.main, adreel.upkeep, adreel.worker\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "ADREEL_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr


def test_memory_stays_flat_while_a_large_film_arrives(start: Start) -> None:  # spec: SE-6
    server = start(EMBED_WORKERS="false").ready()
    server.upload()
    status = Path(f"/proc/{server.process.pid}/status")

    def peak() -> int:
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))

    def film(size: int) -> Iterator[bytes]:
        yield MP4
        for _ in range(size >> 20):
            yield bytes(1 << 20)

    before = peak()
    assert server.post("large.mp4", film(400 << 20)).status_code == 202
    assert peak() - before < 40_000  # KiB
