"""Flask, as an example of WSGI: its processes enqueue, and share one node if they host it themselves."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from chargehand import Chargehand
from chargehand.testing import eventually
from paths import python_path

APP = """
from chargehand import Chargehand
from flask import Flask, abort, request
from werkzeug.serving import make_server

hand = Chargehand()
bare = hand.crew("bare", "minimal_handlers:Bare", workers=1)
app = Flask(__name__)

@app.post("/jobs")
def submit():
    return {"id": bare.enqueue(request.get_json()).id}, 202

@app.get("/jobs/<id>")
def state(id):
    return {"state": hand.job(id).state}

if __name__ == "__main__":
    hand.host()  # the node of this machine: only one process has it, the others take over when that one ends
    server = make_server("127.0.0.1", 0, app)
    print(server.port, flush=True)
    server.serve_forever()
"""


@pytest.mark.full
def test_many_wsgi_processes_share_one_node(tmp_path: Path) -> None:  # spec: SV-11
    """Any of them enqueues; when the process that hosts the node is killed, another hosts the next one."""
    (tmp_path / "flask_app.py").write_text(APP)
    environment = {**os.environ, "PYTHONPATH": python_path(tmp_path), "CHARGEHAND_LIVENESS_GRACE": "1"}
    hand = Chargehand(folder=tmp_path)
    with ExitStack() as stack:
        stack.callback(hand.close)
        servers: list[subprocess.Popen[str]] = []
        for _ in range(3):
            with open(tmp_path / "log", "ab") as log:
                server = subprocess.Popen(
                    [sys.executable, "flask_app.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
                    stderr=log, text=True,
                )  # fmt: skip
            servers.append(stack.enter_context(server))
            stack.callback(server.kill)
        urls = [f"http://127.0.0.1:{server.stdout.readline().strip()}/jobs" for server in servers if server.stdout]

        def done(url: str) -> None:
            job = httpx.post(url, json={}).json()["id"]
            eventually(lambda: httpx.get(f"{urls[-1]}/{job}").json()["state"] == "done")

        for url in urls:
            done(url)
        nodes = (tmp_path / "log").read_text().count("event=node-started")
        assert nodes == 1
        servers[0].send_signal(signal.SIGKILL)
        servers[0].wait()
        done(urls[1])
        servers[1].send_signal(signal.SIGKILL)
        servers[1].wait()
        done(urls[2])
