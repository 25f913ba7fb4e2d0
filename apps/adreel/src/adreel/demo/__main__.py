"""`make adreel`: the demo. Uses only the directory build/adreel."""

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

from adreel import clock, crews, settings, web
from adreel.service import FilmView, Service
from chargehand import CrashFilter

PATIENCE = 300.0
ENDED = ("done", "failed", "cancelled")
PORT = 8356


def say(text: str) -> None:
    """Prints one line immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass
class Demo:
    """A running demo."""

    service: Service
    films: Path
    over: threading.Event
    began: float = field(default_factory=clock.monotonic)
    told: set[str] = field(default_factory=set[str])

    def say(self, text: str) -> None:
        """Prints one line with the seconds since the start."""
        say(f"{clock.monotonic() - self.began:6.1f} s  {text}")

    def wait(self, seconds: float) -> None:
        """Waits while the workers run; raises KeyboardInterrupt after Ctrl+C."""
        if self.over.wait(seconds):
            raise KeyboardInterrupt

    def make_films(self) -> list[Path]:
        """Makes the films, and returns them."""
        subprocess.run([sys.executable, "-m", "adreel.demo.films", str(self.films)], check=True)
        found = sorted(self.films.iterdir())
        self.say(f"{len(found)} films made: {', '.join(path.name for path in found)}; the end of one is missing")
        return found

    def submit(self, path: Path) -> FilmView:
        """Submits a film by its path."""
        film = self.service.submit_path(str(path))
        self.say(f"{film.name}: {film.status}")
        return film

    def watch(self, films: list[FilmView]) -> list[FilmView]:
        """Waits until all films have ended, and kills one worker in between. Returns the films."""
        until, killed = clock.monotonic() + PATIENCE, False
        while True:
            now = [self.service.get(film.id, result=False) for film in films]
            for film in now:
                self.tell(film)
            if not killed:
                killed = self.kill_one()
            if all(film.status in ENDED for film in now):
                return now
            if clock.monotonic() > until:
                raise TimeoutError("the films are not done after five minutes; `chargehand doctor` may give the reason")
            self.wait(0.05)

    def tell(self, film: FilmView) -> None:
        """Prints a line when a film has ended."""
        if film.status not in ENDED or film.id in self.told:
            return
        self.told.add(film.id)
        if film.status == "done":
            sure = f"{film.confidence or 0:.0%} sure"
            brand = f", looks like “{film.brands[0]}”" if film.brands else ""
            self.say(f"{film.name}: {film.category or 'not sure'} ({sure}){brand}, {film.scenes} scenes")
        else:
            self.say(f"{film.name} is set aside: {film.error} ({film.code})")

    def kill_one(self) -> bool:
        """Kills a worker that reads text. Returns whether there was one."""
        status = self.service.crews.hand.status() or {"workers": []}
        busy = (each for each in status["workers"] if each["crew"] == "ocr" and each["pid"] and each["current_job"])
        victim: dict[str, Any] | None = next(busy, None)
        if victim is None:
            return False
        self.say(f"kill -9 {victim['pid']}   ({victim['component']}, in the middle of a scene)")
        at_ms = clock.now_ms()
        os.kill(victim["pid"], signal.SIGKILL)
        while not (crash := self.crash_of(victim["pid"])):
            self.wait(0.002)
        self.say(f"exit detected after {max(0, crash.at_ms - at_ms)} ms: {crash.text}; {crash.follows}")
        return True

    def crash_of(self, pid: int) -> Any:
        """Returns the crash report of that process."""
        found = self.service.crews.hand.crashes(CrashFilter(limit=20))
        return next((crash for crash in found if crash.pid == pid), None)

    def delete_one(self, film: FilmView) -> None:
        """Deletes a film, and prints what is left of it."""
        self.service.delete(film.id)
        while self.service.films.get(film.id) is not None:
            self.service.tidy()
            self.wait(0.05)
        left = list(self.service.folder(film.id).glob("*"))
        self.say(f"{film.name} deleted: {len(left)} files left")


def main() -> int:
    """Runs the demo, configured by ADREEL_DEMO (directory) and ADREEL_DEMO_ONCE."""
    root = Path(os.environ.get("ADREEL_DEMO", "build/adreel")).resolve()
    shutil.rmtree(root, ignore_errors=True)
    films = root / "films"
    films.mkdir(parents=True)
    os.environ |= {"ADREEL_HOME": str(root / "home"), "ADREEL_ROOTS": str(films)}
    found = settings.read()
    service = Service.on(found, crews.build(found))
    service.crews.hand.log_level = "CRITICAL"
    for name in ("chargehand", "adreel"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    over = threading.Event()

    def end(number: int, frame: object) -> None:
        over.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return run(Demo(service, films, over))


def run(demo: Demo) -> int:
    """Serves the page, makes the films, and runs the demo."""
    ear = listen()
    hand = demo.service.crews.hand
    url = f"http://127.0.0.1:{ear.getsockname()[1]}/"
    shown = hand.with_token(url) if sys.stdout.isatty() else url
    server = uvicorn.Server(uvicorn.Config(web.create(demo.service, announce=False), log_level="error"))
    serving = threading.Thread(target=server.run, args=([ear],), daemon=True)
    serving.start()
    try:
        while not server.started:
            demo.wait(0.01)
        demo.say(f"the page is available: {shown}   (Ctrl+C stops everything)")
        ended = demo.watch([demo.submit(path) for path in demo.make_films()])
        demo.delete_one(next(film for film in ended if film.status == "failed"))
        done = sum(film.status == "done" for film in ended)
        kills = len(hand.crashes(CrashFilter(limit=100)))
        say(f"\n{done} films analysed, {len(ended) - done} set aside, {kills} kill, 0 lost; try:")
        say(f"    make adreel\n    .venv/bin/chargehand doctor --store {hand.url}")
        if not os.environ.get("ADREEL_DEMO_ONCE"):
            say(f"\nthe page stays available at {shown} until Ctrl+C: drop a film of your own there")
            demo.over.wait()
    except KeyboardInterrupt:
        say("stopping: running jobs return to the queue, no work is lost")
    except TimeoutError as error:
        say(str(error))
        return 1
    finally:
        server.should_exit = True
        serving.join(30)
        hand.close()
    return 0


def listen(wanted: int = PORT) -> socket.socket:
    """Returns a listening socket on the port, or on any free port if that one is in use."""
    try:
        return socket.create_server(("127.0.0.1", wanted))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


if __name__ == "__main__":
    sys.exit(main())
