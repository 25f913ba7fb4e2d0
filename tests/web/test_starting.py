"""Beginnings: the service in the guide, what `init` writes, `serve`, and what a type checker sees."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from embedserver import Server

from chargehand import Chargehand, ChargehandError, ConfigurationError
from chargehand.cli.init import init
from chargehand.log import Event
from chargehand.model.access import Scope
from chargehand.testing import eventually
from chargehand.web import serving
from paths import HANDLERS, ROOT, token_of

Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Server] = []

    def server(*words: str, **settings: Any) -> Server:
        started.append(Server(tmp_path, *words, **settings))
        return started[-1]

    yield server
    for each in started:
        each.close()


def run(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """As a user would: in the folder, with nothing but the package."""
    env = {name: text for name, text in os.environ.items() if name != "CHARGEHAND_URL"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=100
    )


def follow(server: Server, page: str, answer: str) -> None:
    """Do what the page says: its two curl commands, the second with the id that the first answered with."""
    server.answers("/openapi.json")
    submit, ask = (shlex.split(line, comments=True) for line in page.splitlines() if line.startswith("curl "))
    assert submit[:2] == ask[:2] == ["curl", "-s"]
    assert submit[3] == "--json"
    job_id = server.http.post(httpx.URL(f"http://{submit[2]}").path, json=json.loads(submit[4])).json()
    path = httpx.URL(f"http://{ask[2]}").path
    assert server.http.get(path.replace("ID", job_id)).text == answer


def test_the_service_in_the_guide_works_as_it_stands(start: Start, tmp_path: Path) -> None:  # spec: CF-3
    text = (ROOT / "docs" / "how-to" / "fastapi.md").read_text()
    files = {name: code for code, name in re.findall(r"```python\n(# (\w+\.py).*?)```", text, re.DOTALL)}
    assert list(files) == ["jobs.py", "tagging.py", "main.py"]
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    assert "\nuvicorn main:app " in text
    server = start(command="uvicorn main:app", CHARGEHAND_URL="")
    follow(server, text, '{"scores":{"a.flac":1.0}}')


@pytest.mark.full
def test_what_init_writes_works_as_it_stands(  # spec: CL-5
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = tmp_path / "a" / "service"
    init(service)
    assert f"cd {service} && uvicorn main:app" in capsys.readouterr().out
    assert sorted(each.name for each in service.iterdir()) == [
        ".gitignore", "README.md", "handlers.py", "jobs.py", "main.py", "test_service.py"
    ]  # fmt: skip
    (service / "jobs.py").write_text((service / "jobs.py").read_text() + "# mine\n")
    with pytest.raises(ChargehandError, match=r"already contains \.gitignore, README\.md, .*: nothing was written"):
        init(service)
    assert (service / "jobs.py").read_text().endswith("# mine\n")
    server = Server(service, command="uvicorn main:app", CHARGEHAND_URL="")
    try:
        follow(server, (service / "README.md").read_text(), '{"counts":{"cat":2,"saw":1}}')
    finally:
        server.close()
    tested = run("pytest", "-q", "-p", "no:cacheprovider", cwd=service)
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


TYPED = """
from typing import assert_type
from chargehand import Crew, Ref
from jobs import Text, Words, count
assert_type(count, Crew[Text, Words])
assert_type(count.enqueue(Text(text="x")), Ref[Words])
assert_type(count.enqueue(Text(text="x")).wait(), Words)
count.enqueue("no text")
count.enqueue(Words(counts={}))
"""


@pytest.mark.full
def test_a_type_checker_sees_what_crews_take_and_give(tmp_path: Path) -> None:
    """In a project of its own, strict: what init writes has no error; a wrong payload is one."""
    init(tmp_path)
    (tmp_path / "typed.py").write_text(TYPED)
    project = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(project))
    done = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, cwd=tmp_path)
    found = [
        (Path(each["file"]).name, each["range"]["start"]["line"], each["rule"])
        for each in json.loads(done.stdout)["generalDiagnostics"]
    ]
    assert found == [("typed.py", line, "reportArgumentType") for line in (7, 8)]


# serve


def test_serve_is_the_api_and_the_workers(start: Start) -> None:  # spec: CL-1
    server = start(command="chargehand serve service_jobs:hand")
    assert server.answers("/healthz") == {"status": "ok"}
    assert f"address=http://127.0.0.1:{server.port}" in server.log.read_text()
    token = token_of(server.store)
    eventually(
        lambda: f"requires the token in this file component=host file={server.store}-token" in server.log.read_text()
    )
    assert server.hand.internal.dashboard() == f"http://127.0.0.1:{server.port}/dashboard#token={token}"
    assert server.http.get("/api/v1/info").status_code == 401
    assert server.http.get("/api/v1/info", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    crew = server.hand.crew("tag", "service_handlers:Tagger")
    assert crew.enqueue({"path": "z"}).wait(30)["scores"] == {"z": 1.0}
    second = start(command="chargehand serve service_jobs:hand", EMBED_WORKERS="0")
    assert second.answers("/healthz") == {"status": "ok"}
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    assert f"event={Event.NODE_STOPPED}" in server.log.read_text()
    assert token not in server.log.read_text() + second.log.read_text()
    assert second.hand.status() is None
    assert f"event={Event.WORKER_SPAWNED}" not in second.log.read_text()
    second.ctrl_c()
    assert second.ended() == 0


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Chargehand]:
    made = Chargehand(folder=tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_serve_refuses_other_machines_while_no_key_exists(  # spec: SE-1
    hand: Chargehand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"listening on {host} would allow other machines to connect"):
        serving.listen(hand, host, 0)
    monkeypatch.setenv("CHARGEHAND_ADMIN_KEY", "correct-horse-battery")
    with serving.listen(Chargehand(folder=tmp_path), host, 0) as listening:
        assert listening.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_serve_listens_on_this_machine_without_a_key(hand: Chargehand, host: str) -> None:  # spec: SE-1
    with serving.listen(hand, host, 0) as listening:
        assert listening.getsockname()[0].startswith(("127.", "::1"))
        with socket.create_connection(listening.getsockname()[:2]), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "responses wait for acknowledgements"


def test_serve_says_where_it_cannot_listen(hand: Chargehand) -> None:
    with serving.listen(hand, "127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}: .*in use.*--port"):
            serving.listen(hand, "127.0.0.1", port)
    hand.make_key("any", [Scope.READ])
    with pytest.raises(ConfigurationError, match=r"cannot listen on host 'no\.such\.host\.invalid'"):
        serving.listen(hand, "no.such.host.invalid", 0)


def test_serve_speaks_in_sentences(tmp_path: Path) -> None:
    for name in ("service_jobs.py", "service_handlers.py"):
        shutil.copy(HANDLERS / name, tmp_path)
    done = run("chargehand", "serve", "service_jobs:hand", "--host", "0.0.0.0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no key exists" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
