"""Declares the crews, one for each stage, and the flow of an analysis. Names the handlers without importing them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adreel.records import Classified, Cut, Film, Persisted, Probe, Read, Run
from adreel.settings import PACKAGE, Settings
from chargehand import Chargehand, ConfigurationError, Crew, Retention, Transaction

READING = 700 << 20
"""Bytes of memory that a worker needs for OCR."""
DECODING = 300 << 20
"""Bytes of memory that a worker needs to decode films of up to 1080 lines."""
CLASSIFYING = 250 << 20
IDLE = 60.0
STORE = "adreel.db"
HANDLERS = "adreel.handlers"
"""The module of the handlers of the stages."""
READERS = 2
"""Workers of the stage ocr, unless WORKER_PROCESSES says otherwise."""
KEPT_LONGER = 7 * 86_400.0
"""Seconds for which jobs are kept longer than the films that they belong to, which are deleted with their jobs."""
MOST_KEPT = 100_000_000
TIDY_EVERY = 60.0
"""Seconds between two looks for what has expired, or was left by a crash."""


@dataclass(frozen=True, slots=True)
class Crews:
    """Adreel's crews on one store."""

    hand: Chargehand
    ingest: Crew[Film, Probe]
    frames: Crew[Film, Cut]
    ocr: Crew[Run, Read]
    classify: Crew[Film, Classified]
    persist: Crew[Film, Persisted]
    upkeep: Crew[Any, Any]
    """Records the ends of films, calls the webhook, completes deletions, and removes what has expired."""

    def analyse(self, film: Film, *, within: Transaction | None = None) -> str:
        """Starts the analysis of a film, and returns the id of its flow."""
        with self.hand.flow(film.name, on_end=self.upkeep, within=within) as flow:
            probed = flow.enqueue(self.ingest, film, label=film.name)
            cut = flow.enqueue(self.frames, film, label=film.name, after=probed)  # it spawns the jobs of ocr
            classified = flow.enqueue(self.classify, film, label=film.name, after=cut)
            flow.enqueue(self.persist, film, label=film.name, after=classified)
        return flow.id

    def classify_again(self, film: Film, *, within: Transaction | None = None) -> str:
        """Starts another classification of a film from the text in its folder, without decoding."""
        with self.hand.flow(film.name, on_end=self.upkeep, within=within) as flow:
            classified = flow.enqueue(self.classify, film, label=film.name)
            flow.enqueue(self.persist, film, label=film.name, after=classified)
        return flow.id


def build(settings: Settings, *, handlers: str = HANDLERS) -> Crews:
    """Declares the crews on the store in the data folder, which is made, or on the one that CHARGEHAND_URL names."""
    try:
        for folder in (settings.home, settings.uploads, settings.films):  # with films, which are for nobody else
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigurationError(
            f"the data folder {error.filename} cannot be made: {error.strerror} (ADREEL_HOME)"
        ) from error
    kept = int((settings.keep_results + KEPT_LONGER) * 1000)
    hand = Chargehand(settings.home / STORE, folder=PACKAGE, retention=Retention(age_ms=kept, count=MOST_KEPT))
    made = declare(hand, readers=READERS, environment=settings.environment(), handlers=handlers)
    hand.check_settings()  # here, and not when the server starts: uvicorn would show a traceback
    return made


def declare(
    hand: Chargehand, *, readers: int = 1, environment: Mapping[str, str] | None = None, handlers: str = HANDLERS
) -> Crews:
    """Declares the crews on a store, without starting them."""
    env = dict(environment or {})
    crews = Crews(
        hand,
        ingest=hand.crew("ingest", f"{handlers}:Ingest", takes=Film, gives=Probe, environment=env, idle_exit=IDLE),
        frames=hand.crew(
            "frames", f"{handlers}:Frames", takes=Film, gives=Cut, environment=env, idle_exit=IDLE,
            memory=DECODING, timeout=4 * 3600, max_attempts=2,
        ),
        ocr=hand.crew(
            "ocr", f"{handlers}:Ocr", default=True, takes=Run, gives=Read, workers=readers, environment=env,
            idle_exit=IDLE, memory=READING, recycle_memory="1500 MiB", timeout=1800,
        ),
        classify=hand.crew(
            "classify", f"{handlers}:Classify", takes=Film, gives=Classified, environment=env, idle_exit=IDLE,
            memory=CLASSIFYING,
        ),
        persist=hand.crew(
            "persist", f"{handlers}:Persist", takes=Film, gives=Persisted, environment=env, idle_exit=IDLE,
        ),
        upkeep=hand.crew(
            "upkeep", "adreel.upkeep:Upkeep", environment=env, idle_exit=IDLE, max_attempts=8, timeout=600,
        ),
    )  # fmt: skip
    hand.recurring("tidy", crews.upkeep, {"tidy": True}, every=TIDY_EVERY, key="tidy")
    return crews
