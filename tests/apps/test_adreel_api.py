"""Adreel's API on a real server: uploads and their limits, paths, events, deletion in every stage, trying again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from adreelserver import MP4, Adreel, half_sent, incomplete, parts, streamed

from adreel.records import STAGES
from chargehand.testing import eventually

LIMIT = 200_000


@pytest.fixture(autouse=True)
def every_test_ends_its_processes() -> None:
    """The tests share a server; the module's own check looks at its end."""


@pytest.fixture(autouse=True)
def every_test_opens_its_gates(server: Adreel) -> Iterator[None]:
    """A test that failed leaves no gate closed for the next one."""
    yield
    server.open_gates()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adreel]:
    folder = tmp_path_factory.mktemp("adreel")
    (folder / "root" / "sub").mkdir(parents=True)
    made = Adreel(
        folder, WORKER_PROCESSES="1", ADREEL_MAX_UPLOAD=str(LIMIT), ADREEL_MAX_FILES="3", ADREEL_MIN_FREE="1",
        ADREEL_ROOTS=str(folder / "root"), CHARGEHAND_GRACE="1", CHARGEHAND_LIVENESS_CANCEL="1",
        CORS_ORIGINS="https://page.example", NODE_NAME="studio/1",
    )  # fmt: skip
    yield made.ready()
    made.close()


def test_an_uploaded_film_is_queued_at_once_and_analysed(server: Adreel) -> None:  # spec: AR-1 AR-5
    gate = server.close_gate("ingest")
    answer = server.post("summer.mp4")
    film = answer.json()
    assert (answer.status_code, film["status"], film["name"]) == (202, "queued", "summer.mp4")
    assert answer.headers["location"] == f"/jobs/{film['id']}"
    server.waits_at("ingest")
    running = server.get(film["id"])
    assert (running["status"], running["stage"]) == ("running", "ingest")
    assert [stage["name"] for stage in running["stages"]] == list(STAGES)
    # which worker has the job, and its progress, are written after the job has begun
    eventually(lambda: server.get(film["id"])["stages"][0].get("worker") == "worker:ingest:0", what="its worker")
    eventually(lambda: server.get(film["id"])["stages"][0].get("done"), what="its progress")
    gate.unlink()
    done = server.ends(film["id"])
    assert (done["status"], done["category"], done["confidence"], done["scenes"]) == ("done", "Travel", 0.9, 2)
    assert done["brands"] == ["SONNENFLUG"]
    assert [stage["state"] for stage in done["stages"]] == ["done"] * 5
    assert all(stage["finished_ms"] >= stage["started_ms"] for stage in done["stages"])
    assert done["result"]["scenes"][1]["text"] == ["words of scene 2"]
    frame = server.http.get(f"/jobs/{film['id']}/frames/2")
    assert (frame.status_code, frame.headers["content-type"]) == (200, "image/jpeg")
    assert server.http.get(f"/jobs/{film['id']}/chapters.vtt").text.startswith("WEBVTT")
    for number in ("3", "0", "-1", "1e3", "1" * 300):
        assert server.http.get(f"/jobs/{film['id']}/frames/{number}").status_code in (404, 422)
    found = server.http.get("/jobs", params={"text": "SUMMER", "status": "done", "category": "Travel"}).json()
    assert [each["id"] for each in found["jobs"]] == [film["id"]]
    assert "result" not in found["jobs"][0]
    assert server.http.get("/jobs", params={"text": "sum%er"}).json()["jobs"] == []
    assert server.http.get("/jobs", params={"status": "asleep"}).status_code == 422
    for name in ("text", "category", "after"):  # PostgreSQL has no NUL
        assert server.http.get("/jobs", params={name: "a\0b"}).status_code == 422


def test_several_films_at_once_and_each_refused_file_is_named(server: Adreel) -> None:  # spec: AR-5
    answer = server.http.post("/jobs", files=parts(("a.mp4", MP4), ("notes.mp4", b"plain text " * 500), ("b.mkv", MP4)))
    body = answer.json()
    assert (answer.status_code, body["status"]) == (202, "queued")
    assert [film["name"] for film in body["jobs"]] == ["a.mp4", "b.mkv"]
    assert [(each["name"], each["code"], each["status"]) for each in body["refused"]] == [
        ("notes.mp4", "not-a-film", 415)
    ]
    assert {server.ends(film["id"])["status"] for film in body["jobs"]} == {"done"}
    pages = server.http.get("/jobs", params={"limit": 1}).json()
    assert (len(pages["jobs"]), pages["next"]) == (1, pages["jobs"][0]["id"])
    following = server.http.get("/jobs", params={"limit": 1, "after": pages["next"]}).json()
    assert following["jobs"][0]["id"] < pages["next"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines\r.mp4", "two lines .mp4"),
        ("../../etc/passwd", "passwd"),
        ("C:\\films\\a.mp4", "a.mp4"),
        ("\x1b[31mred\x00.mp4", "[31mred .mp4"),
        ("<img src=x onerror=alert(1)>.mp4", "<img src=x onerror=alert(1)>.mp4"),
        ("", "unnamed"),
        ("x" * 500 + ".mp4", "x" * 188 + "…xxxxxx.mp4"),
    ],
)
def test_names_are_made_fit_to_be_shown_and_are_no_paths(server: Adreel, name: str, shown: str) -> None:  # spec: SE-3
    film = server.upload(name)
    assert film["name"] == shown
    assert server.ends(film["id"])["name"] == shown
    (file,) = (server.home / "films" / film["id"]).glob("source*")
    assert file.name in ("source", "source.mp4")
    assert file.stat().st_mode & 0o077 == 0
    assert server.delete(film["id"]) == 204


def test_what_is_too_large_empty_or_no_film_is_refused_and_leaves_nothing(server: Adreel) -> None:  # spec: SE-3 SE-6
    def chunks(size: int) -> Iterator[bytes]:
        yield MP4
        for _ in range(size // 50_000):
            yield b"x" * 50_000

    before = server.http.get("/jobs").json()["counts"]
    too_long = MP4 + b"x" * LIMIT
    answers = {
        "declared": (server.post(body=too_long * 8), 413),
        "measured": (server.post(body=chunks(2 * LIMIT)), 413),
        "in a form": (server.http.post("/jobs", files=parts(("a.mp4", too_long))), 413),
        "too many": (server.http.post("/jobs", files=parts(*[("a.mp4", MP4)] * 4)), 413),
        "too many paths": (server.http.post("/jobs", files=[("path", (None, "a.mp4"))] * 4), 413),
        "empty": (server.post(body=b""), 422),
        "text": (server.post(body=b"plain text " * 1000), 415),
        "short text": (server.post(body=b"text"), 415),
        "a form without files": (server.http.post("/jobs", files={"other": (None, "x")}), 422),
        "a form that is none": (
            server.http.post("/jobs", content=b"x", headers={"Content-Type": "multipart/form-data; boundary=b"}), 400,
        ),
        "a form without boundary": (
            server.http.post("/jobs", content=b"x", headers={"Content-Type": "multipart/form-data"}), 400,
        ),
        "no type": (server.http.post("/jobs", content=MP4), 415),
        "broken JSON": (server.http.post("/jobs", content=b"{", headers={"Content-Type": "application/json"}), 422),
        "another field": (server.http.post("/jobs", json={"file": "x"}), 422),
    }  # fmt: skip
    assert {name: answer.status_code for name, (answer, _) in answers.items()} == {
        name: status for name, (_, status) in answers.items()
    }
    for answer, status in answers.values():
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert (problem["status"], problem["type"].startswith("urn:adreel:problem:")) == (status, True)
    assert incomplete(server) == []
    assert server.http.get("/jobs").json()["counts"] == before


def test_an_upload_that_is_cut_off_leaves_nothing(server: Adreel) -> None:
    before = server.http.get("/jobs").json()["counts"]
    client = half_sent(server)
    eventually(lambda: len(incomplete(server)) == 1, what="the upload arrives")
    client.close()
    eventually(lambda: incomplete(server) == [], what="the rest of it is removed")
    assert server.http.get("/jobs").json()["counts"] == before


def test_a_path_must_be_below_a_root_with_links_resolved(server: Adreel) -> None:  # spec: SE-3
    root = server.folder / "root"
    (root / "sub" / "ad.mp4").write_bytes(MP4)
    (server.folder / "outside.mp4").write_bytes(MP4)
    (root / "link.mp4").symlink_to(server.folder / "outside.mp4")
    (root / "inner.mp4").symlink_to(root / "sub" / "ad.mp4")
    (root / "notes.mp4").write_text("text")
    os.mkfifo(root / "pipe.mp4")
    refused = ("../outside.mp4", "link.mp4", str(server.folder / "outside.mp4"), "sub", "pipe.mp4", "none.mp4", "a\0b")
    for path in refused:
        answer = server.http.post("/jobs", json={"path": path})
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:adreel:problem:no-such-file"), path
    assert server.http.post("/jobs", json={"path": "notes.mp4"}).status_code == 415
    accepted = server.http.post("/jobs", json={"paths": ["sub/ad.mp4", str(root / "sub" / "ad.mp4"), "inner.mp4"]})
    films = accepted.json()["jobs"]
    assert (accepted.status_code, len(films), accepted.json()["refused"]) == (202, 3, [])
    for film in films:
        assert server.ends(film["id"])["status"] == "done"
        assert server.delete(film["id"]) == 204
    assert (root / "sub" / "ad.mp4").read_bytes() == MP4  # the file is not Adreel's


@pytest.mark.parametrize("stage", STAGES)
def test_a_deletion_stops_the_work_in_every_stage_and_leaves_nothing(server: Adreel, stage: str) -> None:
    # spec: AR-2 AR-8 WK-8
    gate = server.close_gate(stage)
    film = server.upload(f"{stage}.mp4")["id"]
    server.waits_at(stage)
    row = server.row(film)
    first = server.delete(film)
    assert first in (202, 204)  # it stops at its next report of progress, which may have been before the answer
    if first == 202:
        answer = server.http.get(f"/jobs/{film}")
        assert answer.status_code == 404 or answer.json()["status"] == "deleting"
    assert server.delete(film) in (202, 204)
    eventually(lambda: server.is_gone(row), 20, what="nothing is left")
    assert server.delete(film) == 204
    gate.unlink()


def test_a_stage_that_does_not_yield_is_ended_by_force_and_the_film_says_deleting(server: Adreel) -> None:
    # spec: AR-8 WK-8
    gate = server.close_gate("frames")
    film = server.upload("stubborn.mp4")["id"]
    server.waits_at("frames")
    row = server.row(film)
    assert server.delete(film) == 202
    assert server.get(film)["status"] == "deleting"
    assert [each["status"] for each in server.http.get("/jobs", params={"text": film}).json()["jobs"]] == ["deleting"]
    found = server.http.get("/jobs", params={"status": "deleting"}).json()["jobs"]
    assert film in [each["id"] for each in found]
    assert {each["status"] for each in found} == {"deleting"}
    assert server.delete(film) == 202
    for verb in ("retry", "reanalyse"):
        assert server.http.post(f"/jobs/{film}/{verb}").status_code == 409
    assert streamed(server, film)[-1][0] == "gone"
    assert server.is_gone(row)
    assert server.delete(film) == 204
    gate.unlink()


def test_what_waits_or_is_done_or_unknown_is_deleted_at_once(server: Adreel) -> None:  # spec: AR-8
    gate = server.close_gate("ingest")
    first = server.upload("first.mp4")["id"]
    server.waits_at("ingest")
    waiting = server.upload("second.mp4")["id"]
    assert server.get(waiting)["status"] == "queued"
    queued = server.row(waiting)
    assert server.delete(waiting) in (202, 204)  # the node may have the job in its hand already
    eventually(lambda: server.is_gone(queued), what="nothing is left")
    gate.unlink()
    row = server.row(first)
    assert server.ends(first)["status"] == "done"
    assert server.delete(first) == 204
    assert server.is_gone(row)
    for unknown in ("0" * 21, "x", "..%2f..%2fetc"):
        assert server.http.delete(f"/jobs/{unknown}").status_code in (204, 404)
    assert server.delete("0" * 21) == 204


def test_a_failed_film_says_why_and_is_tried_again(server: Adreel) -> None:  # spec: FL-4
    refuse = server.gates / "refuse"
    refuse.touch()
    film = server.upload("broken.mp4")["id"]
    failed = server.ends(film)
    assert (failed["status"], failed["stage"], failed["code"]) == ("failed", "ingest", "truncated")
    assert failed["error"] == "the film ends after 12 % of its length"
    assert [stage["state"] for stage in failed["stages"]] == ["failed", *["skipped"] * 4]
    assert server.http.get(f"/jobs/{film}/chapters.vtt").status_code == 409
    assert server.http.post(f"/jobs/{film}/reanalyse").status_code == 409
    refuse.unlink()
    assert server.http.post(f"/jobs/{film}/retry").status_code == 202
    done = server.ends(film)
    assert (done["status"], "error" in done) == ("done", False)
    assert server.http.post(f"/jobs/{film}/retry").status_code == 409


def test_a_stage_that_no_worker_can_take_says_why(server: Adreel) -> None:  # spec: AR-2
    server.hand.stop("ocr")
    film = server.upload("waits.mp4")["id"]
    eventually(lambda: server.get(film)["stages"][2].get("detail"), what="why it waits")
    assert server.get(film)["stages"][2]["state"] == "queued"
    workers = server.http.get("/diagnostics/concurrency").json()["workers"]
    assert {worker["crew"] for worker in workers if worker["why"]} == {"ocr"}
    server.hand.start("ocr")
    assert server.ends(film)["status"] == "done"


def test_a_film_is_classified_again_without_decoding(server: Adreel) -> None:
    film = server.upload("again.mp4")["id"]
    server.ends(film)
    decoded = server.home / "films" / film / "frames.done"
    decoded.unlink()
    answer = server.http.post(f"/jobs/{film}/reanalyse")
    assert (answer.status_code, answer.json()["status"] in ("queued", "running", "done")) == (202, True)
    done = server.ends(film)
    assert (done["status"], [stage["name"] for stage in done["stages"]]) == ("done", ["classify", "persist"])
    assert not decoded.exists()
    row = server.row(film)
    assert len(row.earlier) == 1
    assert server.delete(film) == 204
    assert server.is_gone(row)


def test_events_tell_every_stage_until_the_end(server: Adreel) -> None:  # spec: AR-1 WK-9
    gate = server.close_gate("ocr")
    film = server.upload("events.mp4")["id"]

    def go_on(view: dict[str, object]) -> None:
        if view.get("stage") == "ocr":
            gate.unlink(missing_ok=True)

    events = streamed(server, film, go_on)
    assert {kind for kind, _ in events} == {"job"}
    assert events[-1][1]["status"] == "done"
    assert "ocr" in {body.get("stage") for _, body in events}
    assert server.http.get(f"/jobs/{'0' * 21}/events").status_code == 404


def test_other_origins_may_call_the_routes_if_they_are_configured(server: Adreel) -> None:  # spec: AR-6
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "DELETE"}
    for path in ("/jobs/x", "/chargehand/api/v1/info"):
        preflight = server.http.options(path, headers={**asked, "Access-Control-Request-Headers": "authorization"})
        assert preflight.headers["access-control-allow-origin"] == "https://page.example", path
    simple = server.http.get("/jobs", headers={"Origin": "https://page.example"})
    assert simple.headers["access-control-allow-origin"] == "https://page.example"
    other = server.http.get("/jobs", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers


def test_diagnostics_tell_the_live_truth(server: Adreel) -> None:  # spec: AR-2
    gate = server.close_gate("frames")
    film = server.upload("busy.mp4")["id"]
    server.waits_at("frames")
    found = eventually(
        lambda: (now := server.http.get("/diagnostics/concurrency").json())["busy"] and now, what="a busy worker"
    )
    assert (found["embedded"], found["threads_per_job"]["ocr"], found["configured"]["ocr"]) == (True, 1, 1)
    (busy,) = (worker for worker in found["workers"] if worker["film"])
    assert (busy["crew"], busy["film"], busy["threads"] >= 1) == ("frames", "busy.mp4", True)
    assert Path(f"/proc/{busy['pid']}").exists()
    nodes = server.http.get("/cluster").json()
    (node,) = nodes["nodes"]
    assert (node["node"], node["status"]) == (nodes["this"], "healthy") == ("studio/1", "healthy")
    for written in ("studio/1", "studio%2F1"):
        started = server.http.post(f"/cluster/{written}/start")
        assert (started.status_code, bool(started.json()["answers"])) == (200, True)
    assert [(job["stage"], job["film"]) for job in node["jobs"]] == [("frames", "busy.mp4")]
    mapping = server.http.get("/diagnostics/mapping").json()
    assert (mapping["ok"], mapping["problems"]) == (True, [])
    assert mapping["folders"]["home"]["path"] == str(server.home)
    assert server.delete(film) in (202, 204)
    gate.unlink()
    for path in ("/healthz", "/readyz", "/api/v1/info", "/api/web/worker/status", "/openapi.json", "/metrics"):
        assert server.http.get(path).status_code == 200, path
