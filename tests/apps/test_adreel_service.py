"""Adreel without processes: settings, the door, expiry, sweeping, the webhook, names and containers."""

import asyncio
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import adreel_gates
import httpx
import msgspec
import pytest
from adreelserver import MP4, add_films
from fastapi.routing import APIRoute
from starlette.requests import Request

from adreel import crews, diagnostics, names, settings, uploads, web
from adreel.catalogue import Catalogue, FilmRow
from adreel.cli import remote
from adreel.door import own_site
from adreel.errors import AdreelError, NoSuchFilm, Refused
from adreel.records import Film
from adreel.service import Service
from adreel.upkeep import Upkeep
from chargehand import ConfigurationError, Flow, GiveUp, JobFilter, State, StoreError
from chargehand.model.access import Scope
from chargehand.testing import run_all
from chargehand.web.auth import needs_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Adreel in this process, with stages that decode nothing."""
    monkeypatch.setenv("ADREEL_HOME", str(tmp_path))
    monkeypatch.setenv("ADREEL_MIN_FREE", "1")
    found = settings.read()
    made = Service.on(found, crews.build(found, handlers="adreel_gates"))
    yield made
    made.crews.hand.close()


def submitted(service: Service, name: str = "a.mp4") -> str:
    async def receive() -> str:
        with uploads.Upload(service.settings, name) as upload:
            await upload.write(MP4)
            await upload.finish()
            return service.submit(upload).id

    return asyncio.run(receive())


def test_results_and_uploads_expire_by_age(service: Service) -> None:  # spec: AR-5
    film = submitted(service)
    run_all(service.crews.hand)
    assert service.get(film).status == "done"
    row = service.films.get(film)
    assert row is not None
    service.films.settle(msgspec.structs.replace(row, ends=9, ended_ms=1))  # it ended long ago
    short = Service(settings.Settings(home=service.settings.home, keep_results=1e12), service.crews, service.films)
    assert short.tidy()["uploads"] == 1
    assert short.get(film).expired
    assert short.get(film).status == "done"
    assert list(service.folder(film).glob("source*")) == []
    assert service.tidy()["deleted"] == 1
    with pytest.raises(NoSuchFilm):
        service.get(film)
    assert not service.folder(film).exists()


def test_a_deletion_that_cannot_be_completed_is_on_record_and_delays_no_other(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-8
    stuck, other, third = (submitted(service) for _ in range(3))
    run_all(service.crews.hand)

    def full(self: Flow) -> None:
        raise StoreError("the disk is full", code="disk-full")

    with monkeypatch.context() as patched:
        patched.setattr(Flow, "delete", full)
        assert not service.delete(other)  # 202: nobody may be told that nothing was changed
        assert service.get(other).status == "deleting"
    uploads.remove_tree(service.folder(stuck))
    service.folder(stuck).touch()  # as a file that another machine has open, it cannot be removed like a folder
    assert not service.delete(stuck)
    service.films.wish(third)
    assert service.tidy()["deleted"] == 2
    assert service.get(stuck).status == "deleting"
    service.folder(stuck).unlink()
    assert service.tidy()["deleted"] == 1


def test_a_form_that_fails_in_the_middle_names_the_films_that_were_started(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Catalogue.add

    def full(self: Catalogue, tx: Any, row: FilmRow) -> None:
        if row.name == "second.mp4":
            raise StoreError("the disk is full", code="disk-full")
        add(self, tx, row)

    monkeypatch.setattr(Catalogue, "add", full)
    key = service.crews.hand.make_key("test", [Scope.ENQUEUE])[0]
    app = web.create(service)

    async def post(*films: str) -> httpx.Response:
        files = [("file", (film, MP4, "video/mp4")) for film in films]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.post("/jobs", files=files, headers={"Authorization": f"Bearer {key}"})

    both = asyncio.run(post("first.mp4", "second.mp4"))
    assert both.status_code == 202
    assert [(each["name"], each["status"], each["code"]) for each in both.json()["refused"]] == [
        ("second.mp4", 507, "disk-full")
    ]
    assert [each["id"] for each in both.json()["jobs"]] == [row.id for row in service.films.find()]
    assert asyncio.run(post("second.mp4")).status_code == 507


def test_a_classification_that_failed_is_tried_again_after_the_file_has_expired(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-5
    film = submitted(service)
    run_all(service.crews.hand)
    service.films.lose_source(film)
    (source,) = service.folder(film).glob("source*")
    source.unlink()
    classified_in_vain(service, film, monkeypatch)
    assert service.retry(film).status == "queued"
    run_all(service.crews.hand)
    assert service.get(film).status == "done"


def classified_in_vain(service: Service, film: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classifies a film again, which fails."""

    def refuse(self: adreel_gates.Classify, job: object) -> None:
        raise GiveUp("categories: the file is not valid")

    with monkeypatch.context() as patched:
        patched.setattr(adreel_gates.Classify, "perform", refuse)
        service.reanalyse(film)
        run_all(service.crews.hand)
    assert service.get(film).status == "failed"


def test_a_result_stays_until_another_one_replaces_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-1
    film = submitted(service)
    assert service.get(film).result is None
    run_all(service.crews.hand)
    first = service.get(film)
    classified_in_vain(service, film, monkeypatch)
    failed = service.get(film)
    assert (failed.code, failed.stage, failed.error) == ("categories", "classify", "the file is not valid")
    service.retry(film)
    again = service.get(film)
    assert (again.status, again.code, again.error, again.ended_ms) == ("queued", None, None, None)
    for view in (failed, again):
        assert view.result == first.result
        assert (view.category, view.brands, view.scenes) == ("Travel", ("SONNENFLUG",), 2)
    assert [each.id for each in service.page(category="Travel", text="sonnenflug", status="queued")] == [film]


def test_another_try_uses_the_present_categories(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    film = submitted(service)
    run_all(service.crews.hand)
    classified_in_vain(service, film, monkeypatch)
    changed = replace(service.settings, categories=ROOT / "other.toml")
    Service.on(changed, service.crews).retry(film)
    (job,) = service.crews.hand.jobs(JobFilter(queue="classify", state=State.QUEUED))
    assert msgspec.json.decode(job.payload, type=Film).categories == str(ROOT / "other.toml")
    run_all(service.crews.hand)
    assert service.get(film).status == "done"
    assert service.delete(film)
    assert not service.crews.hand.flows()


def refused_once(service: Service) -> str:
    """A film whose analysis has failed, and would succeed now."""
    gates = service.settings.home / "gates"
    gates.mkdir()
    (gates / "refuse").touch()
    film = submitted(service, "broken.mp4")
    run_all(service.crews.hand)
    assert service.get(film).status == "failed"
    (gates / "refuse").unlink()
    return film


def test_a_wish_to_try_again_is_completed_after_a_crash(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-8
    film = refused_once(service)

    def crash(self: Flow) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Flow, "retry", crash)
        with pytest.raises(KeyboardInterrupt):
            service.retry(film)
    assert service.get(film).status == "queued"  # the wish is on record
    with pytest.raises(Refused, match="only a failed analysis"):
        service.retry(film)
    service.tidy()
    run_all(service.crews.hand)
    assert service.get(film).status == "done"
    service.tidy()
    assert service.get(film).status == "done"


def test_of_two_wishes_to_try_again_one_counts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    film = refused_once(service)
    find_flow = service.crews.hand.find_flow

    def meanwhile(flow: str) -> Flow:
        """Another request tries the film again, and it is done, while this one has only looked at it."""
        patched.undo()
        service.retry(film)
        run_all(service.crews.hand)
        return find_flow(flow)

    with monkeypatch.context() as patched:
        patched.setattr(service.crews.hand, "find_flow", meanwhile)
        with pytest.raises(Refused) as refused:
            service.retry(film)
    assert (refused.value.status, refused.value.code) == (409, "changed")
    assert service.get(film).status == "done"


def test_the_end_is_recorded_by_whoever_sees_it_first(service: Service) -> None:
    film = submitted(service)
    done = run_all(service.crews.hand)
    assert {each.crew for each in done} >= {"ingest", "frames", "ocr", "classify", "persist", "upkeep"}
    row = service.films.get(film)
    assert row is not None
    assert (row.state, row.ends, row.category) == ("done", 1, "Travel")


def test_the_webhook_gets_the_film_when_it_has_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: HK-1
    got: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.headers, msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))))
            self.send_response(503 if len(got) == 1 else 204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("ADREEL_WEBHOOK", f"http://127.0.0.1:{receiver.server_port}/done")
        film = submitted(service)
        run_all(service.crews.hand, delays=False)
    finally:
        receiver.shutdown()
        receiver.server_close()
    assert len(got) == 2  # the first call failed
    headers, body = got[1]
    assert (headers["idempotency-key"], body["event"], body["job"]["id"]) == (f"{film}-1", "ended", film)
    assert body["job"]["status"] == "done"


def test_ends_are_recorded_before_any_call_of_the_webhook(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-8
    """A receiver that does not answer delays only other calls."""
    seen: list[list[int]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append([row.ends for row in service.films.find()])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("ADREEL_WEBHOOK", f"http://127.0.0.1:{receiver.server_port}/done")
        films = [submitted(service) for _ in range(3)]
        run_all(service.crews.hand)
    finally:
        receiver.shutdown()
        receiver.server_close()
    assert seen == [[1, 1, 1]] * 3
    calls = [job for job in service.crews.hand.jobs(JobFilter(queue="upkeep")) if job.tags]
    assert [job.timeout_ms for job in calls] == [15_000] * 3  # one whose answer never ends is ended
    assert all(service.delete(film) for film in films)


def test_calls_that_failed_are_deleted_with_their_film(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADREEL_WEBHOOK", "http://127.0.0.1:9/nobody")
    film = submitted(service)
    run_all(service.crews.hand, delays=False)
    (failed,) = service.crews.hand.jobs(JobFilter(queue="upkeep", state=State.FAILED))
    assert failed.tags == (film,)
    assert replace_webhook(service).delete(film)
    assert service.crews.hand.jobs(JobFilter(tag=film)) == []


def replace_webhook(service: Service) -> Service:
    """The service of a process that was started with the webhook."""
    return Service.on(settings.read(), service.crews)


def found(service: Service, text: str) -> list[str]:
    return [film.name for film in service.page(text=text)]


def test_a_search_is_for_names_ids_and_brands_in_any_case(service: Service) -> None:  # spec: AR-4
    film = submitted(service, "ÉTÉ à la plage.mp4")
    assert (
        found(service, film) == found(service, "été À") == found(service, "E\u0301TE\u0301") == ["ÉTÉ à la plage.mp4"]
    )
    assert found(service, "sonnenflug") == []
    run_all(service.crews.hand)
    assert found(service, "sonnenflug") == ["ÉTÉ à la plage.mp4"]
    for other in ("persist", "stages", "done", "finished_ms"):  # of the JSON that describes the end
        assert found(service, other) == []


def test_every_film_is_on_a_page(service: Service) -> None:  # spec: AR-4
    rows = add_films(service, 450)
    app = web.create(Service(settings.Settings(home=service.settings.home, open=True), service.crews, service.films))
    pages: list[list[str]] = []
    after = ""
    while after is not None:
        body = asked(app, "GET", f"/jobs?limit=200&after={after}").json()
        pages.append([film["id"] for film in body["jobs"]])
        after = body["next"]
    assert [len(page) for page in pages] == [200, 200, 50]
    assert [film for page in pages for film in page] == [row.id for row in reversed(rows)]


def test_a_table_of_an_older_version_gets_the_column_that_is_searched(tmp_path: Path, service: Service) -> None:
    film = submitted(service, "older.mp4")
    service.crews.hand.close()
    with sqlite3.connect(tmp_path / crews.STORE) as old:
        old.execute("ALTER TABLE adreel_film DROP COLUMN words")
    old.close()
    again = Service.on(service.settings, crews.build(service.settings, handlers="adreel_gates"))
    assert found(again, "OLDER") == ["older.mp4"]
    run_all(again.crews.hand)
    assert found(again, "sonnenflug") == ["older.mp4"]
    assert again.delete(film)
    again.crews.hand.close()


def test_a_film_that_is_deleted_while_it_is_shown_or_tried_again_does_not_exist(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-8
    shown, again = submitted(service, "shown.mp4"), submitted(service, "again.mp4")
    service.crews.hand.find_flow(service.row(again).flow).cancel()
    flow_of, deleted = Service._flow, list[str]()  # pyright: ignore[reportPrivateUsage]

    def deletes(self: Service, row: FilmRow) -> Any:
        if row.id not in deleted:
            deleted.append(row.id)
            assert service.delete(row.id)
        return flow_of(self, row)

    monkeypatch.setattr(Service, "_flow", deletes)
    with pytest.raises(NoSuchFilm):
        service.get(shown)
    monkeypatch.undo()

    def deletes_first(self: Flow) -> Any:
        assert service.delete(again)
        return retry(self)

    retry = Flow.retry
    monkeypatch.setattr(Flow, "retry", deletes_first)
    with pytest.raises(NoSuchFilm):
        service.retry(again)


def test_a_path_that_is_not_utf_8_is_refused(service: Service, tmp_path: Path) -> None:  # spec: SE-3
    root = tmp_path / "root"
    root.mkdir()
    Path(os.fsdecode(os.fsencode(root) + b"/f\xff.mp4")).write_bytes(MP4)
    (root / "link.mp4").symlink_to(os.fsdecode(b"f\xff.mp4"))
    rooted = Service(settings.Settings(home=service.settings.home, roots=(root,)), service.crews, service.films)
    with pytest.raises(Refused) as refused:
        rooted.submit_path("link.mp4")
    assert (refused.value.status, refused.value.code) == (422, "invalid-name")


def test_a_full_disk_refuses_uploads_in_words(service: Service) -> None:
    full = Service(settings.Settings(home=service.settings.home, min_free=1 << 60), service.crews, service.films)
    with pytest.raises(Refused) as refused:
        submitted(full)
    assert (refused.value.status, refused.value.code) == (507, "disk-full")
    assert list(service.settings.uploads.iterdir()) == []


def full(*_: Any) -> Any:
    raise StoreError("the disk that holds /secret/adreel.db is full", "disk-full")


def test_a_data_folder_that_cannot_be_written_or_read_is_named(service: Service) -> None:
    film = submitted(service)
    run_all(service.crews.hand)
    key = service.crews.hand.make_key("test", [Scope.READ, Scope.ENQUEUE])[0]
    headers = {"Content-Type": "video/mp4", "Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(web.create(service))

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return [await client.post("/jobs", content=MP4), await client.get(f"/jobs/{film}")]

    for folder in (service.settings.uploads, service.settings.films):
        other = folder.rename(folder.with_name("elsewhere"))
        folder.touch()  # nobody can write into it, not even root
        refused, shown = asyncio.run(ask())
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:adreel:problem:storage")
        assert shown.status_code == (200 if folder.name == "uploads" else 503)
        assert str(folder) not in refused.text + shown.text
        folder.unlink()
        other.rename(folder)
    assert len(service.films.find()) == 1
    assert not list(service.settings.uploads.iterdir())


def test_a_full_disk_hides_no_film_and_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written into the store, neither the end of a film nor a new one."""
    film = submitted(service)
    monkeypatch.setattr(Upkeep, "_ended", lambda *_: {})
    run_all(service.crews.hand)  # nobody has recorded the end
    monkeypatch.setattr(Catalogue, "settle", full)
    monkeypatch.setattr(Catalogue, "add", full)
    monkeypatch.setattr(Catalogue, "wish", full)
    assert service.get(film).status == "done"
    assert [each.status for each in service.page()] == ["done"]
    with pytest.raises(StoreError):
        submitted(service)
    assert [folder.name for folder in service.settings.films.iterdir()] == [film]
    app = web.create(Service(settings.Settings(home=service.settings.home, open=True), service.crews, service.films))
    answer = asked(app, "DELETE", "/jobs/{film}")
    assert (answer.status_code, answer.json()["type"]) == (507, "urn:adreel:problem:disk-full")
    assert "secret" not in answer.text


def test_files_of_no_film_are_swept_and_others_stay(service: Service) -> None:
    film = submitted(service)
    orphan = service.settings.films / names.new_id()
    (orphan / "frames").mkdir(parents=True)
    left = service.settings.uploads / f"{names.new_id()}.part"
    left.write_bytes(MP4)
    with uploads.Upload(service.settings, "arrives.mp4") as arriving:
        assert set(service.sweep()) == {orphan, left}
        assert arriving.path.exists()
    assert not arriving.path.exists()
    assert service.folder(film).is_dir()
    assert service.delete(film)


def test_a_file_that_cannot_be_removed_delays_nothing_else(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server starts, and other files are removed."""
    stuck, other = sorted(service.settings.uploads / f"{names.new_id()}.part" for _ in range(2))
    for path in (stuck, other):
        path.write_bytes(MP4)
    rows = [service.row(submitted(service)) for _ in range(2)]
    run_all(service.crews.hand)
    for row in rows:
        service.films.settle(msgspec.structs.replace(row, state="done", ends=9, ended_ms=1))
    kept = {stuck, Path(rows[0].source or "")}
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self in kept:
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert service.sweep() == [other]
    long = Service(settings.Settings(home=service.settings.home, keep_results=1e12), service.crews, service.films)
    assert long.tidy()["uploads"] == 1
    assert [service.row(row.id).source is None for row in rows] == [False, True]


def test_a_sweep_removes_nothing_that_adreel_has_not_made(service: Service) -> None:
    """The data folder may be one that had folders of these names before."""
    theirs = [service.settings.films / "holidays" / "beach.mp4", service.settings.films / "notes.txt"]
    theirs.append(service.settings.uploads / "draft.part")
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(MP4)
    assert service.sweep() == []
    assert all(path.exists() for path in theirs)


@pytest.mark.parametrize("moment", ["before the file is in its folder", "after"])
def test_a_sweep_leaves_an_upload_that_is_being_kept(
    service: Service, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another process sweeps while this one moves a file into the folder of its film, whose row is not written yet."""
    rename, swept = Path.rename, list[Path]()

    def sweeps(self: Path, target: Path) -> Path:
        if moment == "after":
            rename(self, target)
        if not swept:
            swept.extend([*service.sweep(), target])
        return target if moment == "after" else rename(self, target)

    monkeypatch.setattr(Path, "rename", sweeps)
    film = submitted(service)
    assert swept
    assert service.row(film).source == str(service.folder(film) / "source.mp4")
    assert (service.folder(film) / "source.mp4").read_bytes() == MP4


NEEDS = {
    "GET /": None,
    "GET /page/{name}": None,
    "GET /page/about/limits": None,
    "POST /jobs": "enqueue",
    "GET /jobs": "read",
    "GET /jobs/{film}": "read",
    "DELETE /jobs/{film}": "enqueue",
    "POST /jobs/{film}/retry": "enqueue",
    "POST /jobs/{film}/reanalyse": "enqueue",
    "GET /jobs/{film}/events": "read",
    "GET /jobs/{film}/frames/{number}": "read",
    "GET /jobs/{film}/chapters.vtt": "read",
    "GET /diagnostics/concurrency": "read",
    "GET /diagnostics/mapping": "read",
    "GET /cluster": "read",
    "POST /cluster/{node:path}/drain": "control",
    "POST /cluster/{node:path}/start": "control",
    "GET /openapi.json": "read",
}
"""Whoever adds a route adds it here; None is for everybody."""


def asked(app: Any, method: str, path: str, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            path_ = path.replace("{film}", "0" * 21).replace("{number}", "1").replace("{name}", "adreel.js")
            return await client.request(method, path_.replace("{node:path}", "nowhere"), headers=headers)

    return asyncio.run(ask())


def test_everything_is_behind_the_door_and_each_scope_opens_its_own(service: Service) -> None:  # spec: AR-8 SE-1
    app = web.create(service)
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert {f"{method} {route.path}": needs_of(route) for route in routes for method in route.methods or ()} == NEEDS
    hand = service.crews.hand
    scopes = {scope.value: hand.make_key(scope.value, [scope])[0] for scope in Scope}
    for name, needed in NEEDS.items():
        method, path = name.split()
        assert (asked(app, method, path).status_code == 401) is (needed is not None), name
        if needed is None:
            continue
        for scope, key in scopes.items():
            status = asked(app, method, path, Authorization=f"Bearer {key}").status_code
            assert (status == 403) is (scope != needed), (name, scope, status)


def test_an_open_service_keeps_drain_shut_and_pages_of_other_sites_out(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:  # spec: AR-8
    is_open = Service(settings.Settings(home=service.settings.home, open=True), service.crews, service.films)
    app = web.create(is_open)
    for name, needed in NEEDS.items():
        method, path = name.split()
        status = asked(app, method, path).status_code
        assert (status in (401, 403)) is (needed == "control"), (name, status)
    assert asked(app, "DELETE", "/jobs/{film}", Origin="https://evil.example").status_code == 403
    assert asked(app, "DELETE", "/jobs/{film}", Origin="http://[").status_code == 403
    assert asked(app, "DELETE", "/jobs/{film}", **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    refuse = own_site([], ["adreel.example"])
    for host, refused in (
        ("adreel.example:80", False),
        ("[::1]:80", True),
        ("evil.example", True),
        ("[", True),
        ("", True),
    ):
        request = Request({"type": "http", "method": "GET", "headers": [(b"host", host.encode())]})
        with pytest.raises(Refused) if refused else nullcontext():
            asyncio.run(refuse(request))
    assert asked(app, "DELETE", "/jobs/{film}", Origin="http://localhost").status_code == 204
    assert own_site(["https://page.example"])
    with caplog.at_level("WARNING", "adreel"):
        web._prepare(is_open)  # pyright: ignore[reportPrivateUsage]
    assert "ADREEL_OPEN is true" in caplog.text


def test_the_page_loads_nothing_from_elsewhere(service: Service) -> None:  # spec: AR-4
    app = web.create(service)
    for path in ("/", "/page/adreel.js", "/page/adreel.css", "/page/icon.svg"):
        answer = asked(app, "GET", path)
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert answer.status_code == 200
        assert "http://" not in text
        assert "https://" not in text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "innerHTML" not in asked(app, "GET", "/page/adreel.js").text
    assert asked(app, "GET", "/page/secret").status_code == 404


def test_settings_come_from_the_environment_then_the_folder_then_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: AR-6 CF-1
    (tmp_path / "here").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / ".env").write_text('ADREEL_MAX_FILES=7\nADREEL_KEEP_UPLOADS=1\nADREEL_MAX_UPLOAD="1 MB"\n')
    (tmp_path / "here" / ".env").write_text("export ADREEL_MAX_FILES=8 # eight\nADREEL_OPEN=Yes\nOTHER=1\n")
    monkeypatch.chdir(tmp_path / "here")
    given = {"ADREEL_MAX_UPLOAD": "2 KiB", "ADREEL_HOME": "~/films", "ADREEL_WEBHOOK": "", "HOME": str(tmp_path)}
    monkeypatch.setenv("HOME", str(tmp_path))
    found = settings.read(given, package=tmp_path / "package")
    assert (found.max_files, found.keep_uploads, found.max_upload, found.open) == (8, 86400.0, 2048, True)
    assert found.home == tmp_path / "films"
    assert found.files == (tmp_path / "here" / ".env", tmp_path / "package" / ".env")
    assert settings.read({"XDG_DATA_HOME": "/data"}, package=tmp_path).home == Path("/data/adreel")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("ADREEL_MAX_FILES", "many", "must be a whole number"),
        ("ADREEL_MAX_UPLOAD", "-1", "must be a size"),
        ("ADREEL_MAX_UPLOAD", "9" * 400, "must be a size"),
        ("ADREEL_HOME", "films", "must be an absolute path"),
        ("ADREEL_HOME", "~no-such-user/films", "must be an absolute path"),
        ("ADREEL_ROOTS", "/a:b", "must be absolute paths"),
        ("ADREEL_WEBHOOK", "ftp://x", "must be an address"),
        ("ADREEL_URL", "http://x:port", "must be an address"),
        ("ADREEL_OPEN", "perhaps", "must be 1, true, yes"),
        ("ADREEL_PORT", "70000", "must be a whole number, 1 to 65535"),
        ("ADREEL_KEEP_RESULTS", "nan", "must be a number of days"),
        ("ADREEL_KEEP_RESULTS", "999999999", "must be a number of days, more than 0 and up to 1000000"),
        ("ADREEL_MAX_FILE", "3", "did you mean ADREEL_MAX_FILES?"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(name: str, text: str, words: str, tmp_path: Path) -> None:
    # spec: CF-1
    with pytest.raises(ConfigurationError, match=name) as error:
        settings.read({name: text}, package=tmp_path)
    assert words in str(error.value)


def test_a_wrong_key_is_not_shown(tmp_path: Path) -> None:  # spec: CF-1 SE-4
    with pytest.raises(ConfigurationError, match="ADREEL_KEY") as error:
        settings.read({"ADREEL_KEY": "ck_über"}, package=tmp_path)
    assert "über" not in str(error.value)


def test_commands_send_the_token_to_this_machine_only(service: Service) -> None:  # spec: SE-1
    token = remote.key(None, service.settings, "http://127.0.0.1:8356")
    assert token
    for here in ("http://localhost:8356", "https://[::1]", f"http://{socket.gethostname()}:1"):
        assert remote.key(None, service.settings, here) == token
    for elsewhere in ("http://192.0.2.7:8356", "http://example.org", "http://127.0.0.1.example.org"):
        assert remote.key(None, service.settings, elsewhere) is None


def test_commands_refuse_an_address_a_key_and_an_id_that_cannot_be_one(tmp_path: Path) -> None:
    known = settings.Settings(home=tmp_path, url="http://known:1/")
    assert (remote.address(None, known), remote.key("ck_1", known, "")) == ("http://known:1", "ck_1")
    assert remote.film_path("0a-b_C") == "/jobs/0a-b_C"
    for given in ("host", "http://x:port", "http://x:99999"):
        with pytest.raises(AdreelError, match="--url"):
            remote.address(given, known)
    for given in ("ü", "a\nb"):
        with pytest.raises(AdreelError, match="--key"):
            remote.key(given, known, "")
    for given in ("", "..", "../healthz", "a?b", "a/frames/1"):
        with pytest.raises(AdreelError):
            remote.film_path(given)


def test_the_example_of_settings_has_every_name_with_its_default() -> None:  # spec: AR-6
    lines = (ROOT / "apps" / "adreel" / ".env.example").read_text().splitlines()
    set_, named = dict[str, str](), set[str]()
    for line in lines:
        name, equals, value = line.removeprefix("#").partition("=")
        if equals and name.isupper() and " " not in name:
            named.add(name)
            if not line.startswith("#"):
                set_[name] = value.strip('"')
    expected = {settings.PREFIX + name.upper() for name in settings.KNOWN}
    expected |= {"EMBED_WORKERS", "WORKER_PROCESSES", "PIPELINE_THREADS_PER_JOB", "CORS_ORIGINS", "NODE_NAME"}
    assert expected <= named
    home = Path("/home/of/tests")
    assert settings.read({**set_, "ADREEL_HOME": str(home)}, package=home) == settings.Settings(home=home)


def test_a_file_of_settings_that_is_no_text_is_named(tmp_path: Path) -> None:  # spec: CF-1
    (tmp_path / ".env").write_bytes(b"ADREEL_MAX_FILES=3 # caf\xe9\n")
    with pytest.raises(ConfigurationError, match=r"the settings in .*\.env cannot be read: 'utf-8' codec"):
        settings.read({}, package=tmp_path)


def test_the_data_folder_is_private_and_one_that_cannot_be_made_is_named(tmp_path: Path) -> None:  # spec: SE-7 CF-1
    made = crews.build(settings.Settings(home=tmp_path / "data"))
    made.hand.close()
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir() if path.is_dir()} == {
        "films": 0o700, "uploads": 0o700,
    }  # fmt: skip
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"the data folder .*file/data cannot be made: Not a directory"):
        crews.build(settings.Settings(home=tmp_path / "file" / "data"))


def test_the_mapping_says_what_is_wrong_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: CF-1 SE-4
    monkeypatch.setenv("CHARGEHAND_URL", "postgresql://me@127.0.0.1:9/adreel?password=sesame")
    categories = tmp_path / "categories.toml"
    found = settings.Settings(home=tmp_path / "home", categories=categories, min_free=1 << 62)
    service = Service.on(found, crews.build(found))
    mapping = diagnostics.mapping(service)
    assert not mapping["ok"]
    assert "sesame" not in repr(mapping)
    assert any("ADREEL_MIN_FREE" in problem for problem in mapping["problems"])
    assert mapping["categories"]["problem"] is not None
    categories.write_bytes(b"[categories")
    assert diagnostics.mapping(service)["categories"]["problem"] is not None
    categories.write_bytes(b"[categories]")
    assert diagnostics.mapping(service)["categories"]["problem"] is None


def test_settings_of_a_crew_that_does_not_exist_are_an_error_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: CF-1
    monkeypatch.setenv("CHARGEHAND_CREW_INGESTT_WORKERS", "1")
    with pytest.raises(ConfigurationError, match="INGESTT"):
        crews.build(settings.Settings(home=tmp_path))


def test_settings_reach_the_workers() -> None:
    found = settings.Settings(home=Path("/h"), roots=(Path("/a"), Path("/b")), keep_results=5.0, webhook="http://x/")
    again = settings.read(found.environment(), package=Path("/nowhere"))
    assert again == settings.Settings(
        home=Path("/h"), roots=(Path("/a"), Path("/b")), keep_results=again.keep_results, webhook="http://x/"
    )
    assert again.keep_results == pytest.approx(5.0, rel=1e-3)
    long = settings.Settings(home=Path("/h"), max_seconds=1_234_567.0, keep_uploads=999_999 * settings.DAY)
    assert settings.read(long.environment(), package=Path("/nowhere")) == long


@pytest.mark.parametrize(
    ("head", "container"),
    [
        (b"\x00\x00\x00\x18ftypisom", "mp4"),
        (b"\x00\x00\x00\x08wide\x00", "mp4"),
        (b"\x1aE\xdf\xa3\x93B\x82", "matroska"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "avi"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", None),
        ((b"\x47" + bytes(187)) * 4, "mpeg-ts"),
        ((bytes(4) + b"\x47" + bytes(187)) * 4, "mpeg-ts"),
        (b"\x47" * 10, None),
        (b"GIF89a", None),
        (b"<!doctype html>", None),
        (b"", None),
    ],
)
def test_containers_are_known_by_their_content(head: bytes, container: str | None) -> None:
    assert names.container(head) == container
