"""What handlers import stays in the workers; what the package needs is small."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from world import World

from chargehand import Chargehand, ConfigurationError
from paths import python_path


@pytest.mark.full
def test_only_workers_import_what_a_handler_needs(hand: Chargehand, world: World) -> None:  # spec: WP-2
    """The heavy module writes down every process that imports it: workers, and nobody else."""
    (world.folder / "heavy_model.py").write_text(
        f"import os\nwith open({str(world.folder / 'importers')!r}, 'a') as file:\n"
        "    file.write(f'{os.getpid()}\\n')\n"
    )
    (world.folder / "heavy_app.py").write_text(
        "from scripted_app import chargehand\n"
        f"hand = chargehand({str(world.store)!r})\n"
        "crew = hand.crew('heavy', 'scripted_handlers:Heavy', workers=2)\n"
    )
    environment = {**os.environ, "PYTHONPATH": python_path(world.folder)}
    log = world.folder / "log"
    with open(log, "wb") as out:
        host = subprocess.Popen(
            [sys.executable, "-m", "chargehand", "work", "heavy_app:hand"], env=environment, stderr=out, stdout=out
        )
    crew = hand.crew("heavy", "scripted_handlers:Heavy")
    try:
        workers = {crew.enqueue(None).wait(20) for _ in range(20)}
        for command in (["status"], ["jobs", "list"], ["jobs", "enqueue", "heavy", "1"]):
            done = subprocess.run(
                [sys.executable, "-m", "chargehand", *command, "--app", "heavy_app:hand"],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "")
        view = hand.status()
        assert view
        importers = {int(line) for line in (world.folder / "importers").read_text().split()}
        assert importers == {w["pid"] for w in view["workers"]}
        assert workers <= importers
        assert not importers & {host.pid, view["pid"], os.getpid()}
    finally:
        host.terminate()
        host.wait(20)


def test_a_worker_is_light(hand: Chargehand, world: World) -> None:  # spec: WP-2
    """A bare worker has loaded neither the store's engine nor msgspec; the node nothing of the web."""
    bare = hand.crew("bare", "minimal_handlers:Bare", workers=1)
    with hand.running() as host:
        mapped = Path(f"/proc/{bare.enqueue(None).wait(20)}/maps").read_text()
        assert [heavy for heavy in ("apsw", "msgspec", "pydantic", "_asyncio") if heavy in mapped] == []
        mapped = Path(f"/proc/{host.node_pid}/maps").read_text()
        assert [heavy for heavy in ("pydantic", "_asyncio") if heavy in mapped] == []


def test_a_worker_loads_few_modules() -> None:
    """The worker's main module loads only these modules of the package, and no third-party library."""
    script = "import sys; from chargehand.worker.main import main; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert sorted(name for name in loaded if name.partition(".")[0] == "chargehand") == [
        "chargehand",
        "chargehand.clock",
        "chargehand.codec",
        "chargehand.errors",
        "chargehand.handler",
        "chargehand.processes",
        "chargehand.processes.prctl",
        "chargehand.protocol",
        "chargehand.protocol.frame",
        "chargehand.tracing",
        "chargehand.worker",
        "chargehand.worker.context",
        "chargehand.worker.failures",
        "chargehand.worker.forked",
        "chargehand.worker.hand",
        "chargehand.worker.main",
        "chargehand.worker.perform",
        "chargehand.worker.pulse",
        "chargehand.worker.thread_cap",
    ]
    heavy = {"msgspec", "pydantic", "fastapi", "apsw", "asyncio", "logging", "socket", "importlib", "mmap"}
    assert heavy.isdisjoint(loaded)


def test_folders_and_environment_may_have_names_that_are_not_utf8(  # spec: WP-1 WP-3
    hand: Chargehand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "place_handler.py").write_text(PLACE)
    monkeypatch.syspath_prepend(str(folder))
    place = hand.crew("place", "place_handler:Place", workers=1, environment={"PLACE": f"{folder}/{{index}}"})
    with hand.running():
        assert place.enqueue(None).wait(20) == [f"{folder}/0", str(folder)]


PLACE = """
import os
from chargehand import Handler

class Place(Handler):
    def perform(self, job):
        return [os.environ["PLACE"], os.path.dirname(__file__)]
"""


def test_environment_that_no_process_can_have_is_refused(hand: Chargehand) -> None:  # spec: CF-1
    with pytest.raises(ConfigurationError, match=r"environment 'A'='\\ud800' is not valid Unicode"):
        hand.crew("bare", "minimal_handlers:Bare", environment={"A": "\ud800"})


def test_settings_that_are_not_utf8_are_refused(
    hand: Chargehand, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: CF-1
    monkeypatch.setenv("CHARGEHAND_FILES", os.fsdecode(b"/tmp/caf\xe9"))
    other = Chargehand(hand.path, folder=hand.path.parent)
    other.crew("bare", "minimal_handlers:Bare")
    with pytest.raises(ConfigurationError, match=r"caf\\udce9', which is not valid UTF-8"):
        other.brief()
    other.close()
