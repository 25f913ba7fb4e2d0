"""The stages as jobs of a flow: in this process, and in real workers that are cancelled and killed."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_adreel_media_hostile import large, sounds

from adreel import crews, handlers, settings
from adreel.records import RESULT, Analysis, Code, Film, Refusal
from adreel.synth import ADVERT, Card, advert
from chargehand import GiveUp, JobFilter, State
from chargehand.testing import eventually, run_all


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[crews.Crews]:
    """Adreel's crews in a folder of their own. Handlers limit the memory of their process: that is undone."""
    monkeypatch.setenv("ADREEL_HOME", str(tmp_path / "home"))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    found = crews.build(settings.read())
    yield found
    found.hand.close()
    resource.setrlimit(resource.RLIMIT_DATA, before)


def film(path: Path, **options: Any) -> Film:
    return Film("1", str(path), path.name, str(path.parent / "analysis"), **options)


def result(path: Path) -> Analysis:
    return msgspec.json.decode((path.parent / "analysis" / RESULT).read_bytes(), type=Analysis)


def test_a_film_goes_through_the_flow(here: crews.Crews, tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "advert.mp4"
    advert(path, ADVERT[1:3])
    flow = here.hand.find_flow(here.analyse(film(path)))
    performed = [each.crew for each in run_all(here.hand) if each.crew != "upkeep"]
    assert performed == ["ingest", "frames", "ocr", "ocr", "classify", "persist"]
    assert flow.status().state == "done"
    assert {job.label for job in flow.jobs()} == {"advert.mp4"}  # by which operators know what a worker is at
    assert result(path).guess.category == "Fashion & sportswear"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_reason_and_other_errors_are_repeated(number: int) -> None:  # spec: AR-1
    with pytest.raises(GiveUp) as full, handlers.refusals():
        raise OSError(number, os.strerror(number))
    found = Refusal.parse(str(full.value))
    assert found is not None
    assert found.code is Code.DISK_FULL
    with pytest.raises(OSError, match="Input/output"), handlers.refusals():
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_text_file_fails_for_good_with_its_reason(here: crews.Crews, tmp_path: Path) -> None:  # spec: AR-1
    path = tmp_path / "text.mp4"
    path.write_text("This is a text.\n")
    flow = here.hand.find_flow(here.analyse(film(path)))
    run_all(here.hand)
    (failed,) = here.hand.jobs(JobFilter(queue="ingest", state=State.FAILED))
    found = Refusal.parse(failed.error)
    assert found is not None
    assert found.code is Code.NOT_A_FILM
    assert failed.attempts <= 1
    assert flow.status().state == "failed"


def long(path: Path, times: int) -> None:
    """A film of 10 s that is repeated: the clock of a transport stream may begin anew."""
    advert(path, [Card(10, ("NORDLYS",))])
    path.write_bytes(path.read_bytes() * times)


@contextmanager
def working(home: Path, **environment: str) -> Generator[None]:
    """`python -m adreel.worker`, on a machine of any size: the films here need little."""
    environment = {"CHARGEHAND_STARTS_MEMORY": "64 GiB", **environment}
    log = (home / "worker.log").open("wb")
    command = [sys.executable, "-m", "adreel.worker"]
    running = subprocess.Popen(command, env={**os.environ, **environment}, cwd=home, stdout=log, stderr=log)
    try:
        yield
    finally:
        running.terminate()
        running.wait(30)
        log.close()


def worker_at(here: crews.Crews, queue: str) -> int | None:
    """The process that performs a job of a queue, once the job reports progress."""
    running = here.hand.jobs(JobFilter(queue=queue, state=State.RUNNING))
    view = here.hand.status()
    if not running or running[0].progress is None or view is None:
        return None
    return next((each["pid"] for each in view["workers"] if each["crew"] == queue and each["pid"]), None)


@pytest.mark.full
def test_decoding_stops_within_two_seconds(here: crews.Crews, tmp_path: Path) -> None:  # spec: AR-2
    path = tmp_path / "long.ts"
    long(path, 100)
    flow = here.hand.find_flow(here.analyse(film(path)))
    with working(tmp_path / "home"):
        eventually(lambda: worker_at(here, "frames"), what="the film is being decoded")
        flow.cancel()
        eventually(lambda: flow.status().ended_ms is not None, timeout=5, what="the flow ends")
    (stopped,) = here.hand.jobs(JobFilter(queue="frames"))
    record = flow.status()
    assert stopped.state is State.CANCELLED
    assert record.ended_ms is not None
    assert record.cancel_ms is not None
    assert record.ended_ms - record.cancel_ms < 2000
    assert not (path.parent / "analysis" / "scenes.json").exists()


@pytest.mark.full
def test_a_crash_of_the_decoder_is_that_of_its_job(here: crews.Crews, tmp_path: Path) -> None:  # spec: AR-2
    path = tmp_path / "long.ts"
    long(path, 12)
    flow = here.hand.find_flow(here.analyse(film(path)))
    with working(tmp_path / "home"):
        pid = eventually(lambda: worker_at(here, "frames"), what="the film is being decoded")
        assert pid is not None
        os.kill(pid, signal.SIGSEGV)
        eventually(lambda: flow.status().ended_ms is not None, timeout=60, what="the flow ends")
        workers = {each["crew"]: each["pid"] for each in (here.hand.status() or {})["workers"]}
        threads = {crew: len(os.listdir(f"/proc/{workers[crew]}/task")) for crew in ("frames", "ocr")}
        assert threads == {"frames": 2, "ocr": 2}  # those of any worker: no native pool has added one; spec: AR-2
    assert flow.status().state == "done"
    (job,) = here.hand.jobs(JobFilter(queue="frames"))
    assert job.crashes == 1
    assert result(path).cut.seconds == pytest.approx(120, abs=1)


@pytest.mark.full
def test_films_that_want_too_much_are_refused_and_the_workers_live(here: crews.Crews, tmp_path: Path) -> None:
    # spec: AR-1 AR-2
    whole = tmp_path / "advert.mp4"
    advert(whole, ADVERT[1:3])
    cut = tmp_path / "truncated.mp4"
    cut.write_bytes(whole.read_bytes()[:-2000])
    text, heavy, many, silent = (tmp_path / name for name in ("text.mp4", "heavy.mkv", "many.mkv", "silent.mp4"))
    text.write_text("This is a text.\n")
    large(heavy, "mjpeg", 5800, "yuvj420p", 2)
    large(many, "mjpeg", 10_000, "yuvj420p")
    sounds(silent, 2)
    expected = {
        cut: Code.TRUNCATED, text: Code.NOT_A_FILM, heavy: Code.MEMORY, many: Code.TOO_MANY_PIXELS,
        silent: Code.NO_VIDEO,
    }  # fmt: skip
    with working(tmp_path / "home", ADREEL_MAX_MEMORY="180 MiB"):
        found = {
            path: here.analyse(Film(path.stem, str(path), path.name, str(tmp_path / path.stem))) for path in expected
        }
        flows = {path: here.hand.find_flow(flow) for path, flow in found.items()}
        eventually(lambda: all(flow.status().ended_ms for flow in flows.values()), 60, what="each is refused")
        failed = {path: [job for job in flow.jobs() if job.reason == "gave up"] for path, flow in flows.items()}
        codes = {
            path: [getattr(Refusal.parse(job.error), "code", job.error) for job in jobs]
            for path, jobs in failed.items()
        }
        assert codes == {path: [code] for path, code in expected.items()}
        assert here.hand.crashes() == []
        workers = {each["crew"]: each["pid"] for each in (here.hand.status() or {})["workers"]}
        good = here.hand.find_flow(here.analyse(film(whole)))
        decoded = JobFilter(flow=good.id, queue="frames", state=State.DONE)  # OCR needs more than this limit
        eventually(lambda: here.hand.jobs(decoded), 60, what="a good film is decoded after them")
        after = {each["crew"]: each["pid"] for each in (here.hand.status() or {})["workers"]}
        assert {after[crew] == workers[crew] for crew in ("ingest", "frames")} == {True}
