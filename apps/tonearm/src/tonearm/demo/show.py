"""What the demonstration shows, one line after the other, as it happens. Light."""

import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chargehand import CrashFilter, JobFilter, State
from tonearm import clock, hearing, report
from tonearm.crews import Crews
from tonearm.errors import TonearmError
from tonearm.handlers import Look
from tonearm.library import Library, shown
from tonearm.tiers import within

PATIENCE = 600.0
BEFORE_THE_KILL = 2
"""Songs that are heard before a worker is killed."""


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


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
    began_ms: int = field(default_factory=clock.now_ms)
    told: set[int] = field(default_factory=set[int])
    killed: bool = False

    def say(self, text: str) -> None:
        """One line, with the seconds since the beginning."""
        say(f"{clock.monotonic() - self.began:6.1f} s  {text}")

    def wait(self, seconds: float) -> None:
        """Let the others work; KeyboardInterrupt if somebody pressed Ctrl+C."""
        if self.over.wait(seconds):
            raise KeyboardInterrupt

    def scan(self) -> None:
        """Have the folder looked through."""
        folder = self.library.add_folder(self.music)
        ref = self.crews.library.enqueue(Look(folder.id), key=f"scan {folder.id}", label=shown(folder.root))
        while ref.job().finished_ms is None:
            self.wait(0.05)
        self.say(f"{ref.wait()['files']} files found in {shown(folder.root)}; nothing is written into them")

    def listen(self) -> None:
        """Until all is heard; one worker is killed on the way."""
        until = clock.monotonic() + PATIENCE if self.ours else None
        while True:
            self.wait(0.05 if self.ours else 1.0)
            report.notice_failures(self.crews.hand, self.library)
            self.tell_new()
            if len(self.told) >= BEFORE_THE_KILL and not self.killed:
                self.kill_one()
            if not report.progress(self.library).waiting:
                return
            if until is not None and clock.monotonic() > until:
                raise TonearmError("the songs are not done within ten minutes; `chargehand doctor` may say why")

    def tell_new(self) -> None:
        """A line for every song that was heard since."""
        heard = self.library.rows(
            "SELECT id, path, took FROM file WHERE tagged_ms >= ? ORDER BY tagged_ms", self.began_ms
        )
        for number, path, took in heard:
            if number not in self.told:
                self.told.add(number)
                sure = within(hearing.labels(self.library, number), "regular")
                names = ", ".join(label.name for label in sure) or "no label is sure enough"
                self.say(f"{shown(os.path.basename(path))}: {names}  ({took:.1f} s)")

    def kill_one(self) -> None:
        """SIGKILL to a worker in the middle of a song; then: when was that noticed, and where did the song go on?"""
        victim = next((w for w in report.workers(self.crews.hand, self.library) if _listening(w)), None)
        if victim is None:
            return
        self.killed = True
        at_ms = self.kill(victim, f"in the middle of “{victim['song']}”")
        while self.is_open(victim["doing"]):
            at_work = report.workers(self.crews.hand, self.library)
            again = next((w for w in at_work if w["doing"] == victim["doing"] and w["pid"]), None)
            if again is not None and again["pid"] != victim["pid"]:
                where = f"{again['component']} (pid {again['pid']})"
                self.say(f"“{victim['song']}” goes on in {where}, {clock.now_ms() - at_ms} ms after the kill")
                return
            self.wait(0.005)

    def kill_idle(self) -> None:
        """SIGKILL to a worker that has nothing to do: when was that noticed, and what follows?"""
        victim = next(w for w in report.workers(self.crews.hand, self.library) if w["crew"] == "library")
        self.kill(victim, "idle")

    def kill(self, victim: dict[str, Any], state: str) -> int:
        """SIGKILL, and what the node says to it. When it was killed."""
        self.say(f"kill -9 {victim['pid']}   ({victim['component']}, {state})")
        at_ms = clock.now_ms()
        os.kill(victim["pid"], signal.SIGKILL)
        while (crash := self.crash_of(victim["pid"])) is None:
            self.wait(0.002)
        self.say(f"noticed {max(0, crash.at_ms - at_ms)} ms later: {crash.text}; {crash.follows}")
        return at_ms

    def is_open(self, doing: str) -> bool:
        """Whether the song that a worker had in hand still waits or runs."""
        found = self.crews.hand.jobs(JobFilter(queue="tag", text=doing.partition("/")[2], limit=1))
        return any(job.state in (State.QUEUED, State.RUNNING) for job in found)

    def crash_of(self, pid: int) -> Any:
        """The report of that process's death."""
        return next((c for c in self.crews.hand.crashes(CrashFilter(limit=50)) if c.pid == pid), None)

    def sum_up(self, changed: int) -> str:
        """What came of it, counted."""
        now, troubles = report.progress(self.library), report.troubles(self.library)
        bad = [wrong for wrong in troubles if wrong.stage == "tag"]
        for wrong in bad:
            self.say(f"quarantined: {wrong.path}: {wrong.reason}")
        kills = len(self.crews.hand.crashes(CrashFilter(limit=1000)))
        lost = now.files - now.tagged - now.waiting - len({wrong.path for wrong in troubles})
        heard = f"{now.tagged} tagged, " + (f"{now.waiting} waiting, " if now.waiting else "")
        return f"{heard}{len(bad)} quarantined, {kills} kills, {max(0, lost)} lost, {changed} files changed"

    def stay(self) -> None:
        """Until Ctrl+C; whoever kills a worker is told what came of it."""
        known = {crash.id for crash in self.crews.hand.crashes(CrashFilter(limit=50))}
        while not self.over.wait(0.5):
            for crash in self.crews.hand.crashes(CrashFilter(limit=50)):
                if crash.id not in known:
                    known.add(crash.id)
                    self.say(f"{crash.component} (pid {crash.pid}) is gone: {crash.text}; {crash.follows}")


def _listening(worker: dict[str, Any]) -> bool:
    step: dict[str, Any] = worker["progress"] or {}
    return worker["crew"] == "tag" and bool(worker["pid"] and worker["doing"]) and step.get("stage") == "listen"
