"""What handlers import stays in the workers; what the package needs is small."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from world import World

from chargehand import Chargehand
from paths import ROOT, python_path


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


@pytest.mark.full
def test_the_wheel_without_extras_imports_and_works(world: World) -> None:
    """In an environment of its own that has the two core dependencies and nothing else."""
    dist = world.folder / "dist"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    home = world.folder / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    import apsw
    import msgspec

    for module in (apsw, msgspec):
        folder = Path(str(module.__file__)).parent
        (site / folder.name).symlink_to(folder)
    (wheel,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True)
    (world.folder / "jobs.py").write_text(
        "from chargehand import Chargehand\nhand = Chargehand()\ncrew = hand.crew('add', 'adding:Add', workers=1)\n"
    )
    (world.folder / "adding.py").write_text(
        "from chargehand import Handler\n"
        "class Add(Handler):\n    def perform(self, job):\n        return sum(job.payload)\n"
    )
    (world.folder / "go.py").write_text(
        "import chargehand, jobs\n"
        "for name in chargehand.__all__: getattr(chargehand, name)\n"
        "with jobs.hand.running(): print(jobs.crew.enqueue([1, 2]).wait(20), chargehand.__file__)\n"
    )
    python = home / "bin" / "python"
    done = subprocess.run([python, "go.py"], cwd=world.folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"3 {site}")
    told = subprocess.run([python, "-m", "chargehand"], cwd=world.folder, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "pip install 'chargehand[cli]'" in told.stderr


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
