"""Pauses analysis and writing outside working hours. The decision is pure; one thread checks the clock."""

import logging
import re
import threading
from dataclasses import dataclass

from chargehand import Chargehand, ChargehandError
from tonearm import clock
from tonearm.errors import TonearmError

FORM = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")
WHO = "tonearm's working hours"
EVERY = 20.0
CREWS = ("tag", "write")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hours:
    """A time span of the day, which may include midnight."""

    start: int
    end: int

    def include(self, minute: int) -> bool:
        """Returns whether a minute of the day is in the span."""
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse(text: str) -> Hours:
    """Parses `01:00-07:00`."""
    found = FORM.fullmatch(text.strip())
    if found is None:
        raise TonearmError(f"invalid working hours {text!r}: use the form 01:00-07:00")
    begin_hour, begin_minute, end_hour, end_minute = map(int, found.groups())
    hours = Hours(begin_hour * 60 + begin_minute, end_hour * 60 + end_minute)
    if hours.start == hours.end:
        raise TonearmError(f"invalid working hours {text!r}: start and end are equal")
    return hours


def minute_now() -> int:
    """Returns the current minute of the local day."""
    hour, minute = clock.local_time(clock.now_ms())[11:16].split(":")
    return int(hour) * 60 + int(minute)


class Keeper:
    """Pauses the crews outside the hours, and resumes only pauses that it made itself."""

    def __init__(self, hand: Chargehand, hours: Hours | None) -> None:
        self._hand, self._hours = hand, hours
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tonearm-hours", daemon=True)

    def start(self) -> None:
        """Checks once and then starts the thread. Without hours, removes the pause of an earlier run."""
        self.step(minute_now())
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread."""
        self._over.set()
        self._thread.join()

    def step(self, minute: int) -> None:
        """Checks once."""
        paused = {pause.scope: pause.who for pause in self._hand.pauses()}
        working = self._hours is None or self._hours.include(minute)
        for crew in CREWS:
            if working and paused.get(crew) == WHO:
                self._hand.resume(crew)
            elif not working and crew not in paused:
                self._hand.pause(crew, reason="outside working hours", who=WHO)

    def _run(self) -> None:
        while self._hours is not None and not self._over.wait(EVERY):
            try:
                self.step(minute_now())
            except ChargehandError as error:  # for example, the node is being replaced: try again at the next check
                _logger.warning("cannot apply working hours, will try again: %s", error)
