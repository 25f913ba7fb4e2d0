"""Prints the steps of the demo as they happen. Must not import numpy or a decoder."""

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
"""Number of analysed songs before a worker is killed."""


def say(text: str) -> None:
    """Prints one line immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass
class Demo:
    """A running demo."""

    crews: Crews
    library: Library
    music: Path
    over: threading.Event
    ours: bool
    """Whether the songs are generated, so that their number is known and no other program writes them."""
    began: float = field(default_factory=clock.monotonic)
    began_ms: int = field(default_factory=clock.now_ms)
    told: set[int] = field(default_factory=set[int])
    killed: bool = False

    def say(self, text: str) -> None:
        """Prints one line with the seconds since the start."""
        say(f"{clock.monotonic() - self.began:6.1f} s  {text}")

    def wait(self, seconds: float) -> None:
        """Waits while the workers run; raises KeyboardInterrupt after Ctrl+C."""
        if self.over.wait(seconds):
            raise KeyboardInterrupt

    def scan(self) -> None:
        """Scans the folder."""
        folder = self.library.add_folder(self.music)
        ref = self.crews.library.enqueue(Look(folder.id), key=f"scan {folder.id}", label=shown(folder.root))
        while ref.job().finished_ms is None:
            self.wait(0.05)
        self.say(f"{ref.wait()['files']} files found in {shown(folder.root)}; no file is written")

    def listen(self) -> None:
        """Waits until all songs are analysed, and kills one worker in between."""
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
                raise TonearmError(
                    "the songs are not finished after ten minutes; `chargehand doctor` may give the reason"
                )

    def tell_new(self) -> None:
        """Prints a line for every newly analysed song."""
        heard = self.library.rows(
            "SELECT id, path, took FROM file WHERE tagged_ms >= ? ORDER BY tagged_ms", self.began_ms
        )
        for number, path, took in heard:
            if number not in self.told:
                self.told.add(number)
                sure = within(hearing.labels(self.library, number), "regular")
                names = ", ".join(label.name for label in sure) or "no certain label"
                self.say(f"{shown(os.path.basename(path))}: {names}  ({took:.1f} s)")

    def kill_one(self) -> None:
        """Kills a worker that analyses a song, and prints when the exit was detected and where the song continues."""
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
                self.say(f"“{victim['song']}” continues in {where}, {clock.now_ms() - at_ms} ms after the kill")
                return
            self.wait(0.005)

    def kill_idle(self) -> None:
        """Kills an idle worker, and prints when the exit was detected and what follows."""
        victim = next(w for w in report.workers(self.crews.hand, self.library) if w["crew"] == "library")
        self.kill(victim, "idle")

    def kill(self, victim: dict[str, Any], state: str) -> int:
        """Kills a worker, prints the crash report, and returns the time of the kill."""
        self.say(f"kill -9 {victim['pid']}   ({victim['component']}, {state})")
        at_ms = clock.now_ms()
        os.kill(victim["pid"], signal.SIGKILL)
        while (crash := self.crash_of(victim["pid"])) is None:
            self.wait(0.002)
        self.say(f"exit detected after {max(0, crash.at_ms - at_ms)} ms: {crash.text}; {crash.follows}")
        return at_ms

    def is_open(self, doing: str) -> bool:
        """Returns whether the song of a worker still waits or runs."""
        found = self.crews.hand.jobs(JobFilter(queue="tag", text=doing.partition("/")[2], limit=1))
        return any(job.state in (State.QUEUED, State.RUNNING) for job in found)

    def crash_of(self, pid: int) -> Any:
        """Returns the crash report of that process."""
        return next((c for c in self.crews.hand.crashes(CrashFilter(limit=50)) if c.pid == pid), None)

    def sum_up(self, changed: int) -> str:
        """Prints the summary."""
        now, troubles = report.progress(self.library), report.troubles(self.library)
        bad = [wrong for wrong in troubles if wrong.stage == "tag"]
        for wrong in bad:
            self.say(f"quarantined: {wrong.path}: {wrong.reason}")
        kills = len(self.crews.hand.crashes(CrashFilter(limit=1000)))
        lost = now.files - now.tagged - now.waiting - len({wrong.path for wrong in troubles})
        heard = f"{now.tagged} tagged, " + (f"{now.waiting} waiting, " if now.waiting else "")
        return f"{heard}{len(bad)} quarantined, {kills} kills, {max(0, lost)} lost, {changed} files changed"

    def stay(self) -> None:
        """Runs until Ctrl+C and prints every crash."""
        known = {crash.id for crash in self.crews.hand.crashes(CrashFilter(limit=50))}
        while not self.over.wait(0.5):
            for crash in self.crews.hand.crashes(CrashFilter(limit=50)):
                if crash.id not in known:
                    known.add(crash.id)
                    self.say(f"{crash.component} (pid {crash.pid}) exited: {crash.text}; {crash.follows}")


def _listening(worker: dict[str, Any]) -> bool:
    step: dict[str, Any] = worker["progress"] or {}
    return worker["crew"] == "tag" and bool(worker["pid"] and worker["doing"]) and step.get("stage") == "listen"
