"""How many workers each crew has, and how many threads a worker."""

from collections.abc import Sequence
from dataclasses import dataclass

from chargehand.errors import ConfigurationError
from chargehand.settings.known import Settings, crew_key

USUAL_WORKERS = 2
"""Of the crew that is marked default, or is the only one, if nobody says how many."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A crew as its application declared it."""

    name: str
    workers: int | None
    default: bool = False


def workers(settings: Settings, crews: Sequence[Declared]) -> dict[str, int]:
    """How many workers each crew has: as it was declared, unless a setting says otherwise."""
    _check_crews(settings, crews)
    marked = [crew.name for crew in crews if crew.default]
    main = marked[0] if marked else crews[0].name if len(crews) == 1 else None
    found: dict[str, int] = {}
    for crew in crews:
        usual = USUAL_WORKERS if crew.name == main else 1
        count = usual if crew.workers is None else crew.workers
        if crew.name == main and settings.worker_processes is not None:
            count = settings.worker_processes
        found[crew.name] = settings.crews.get(crew_key(crew.name), {}).get("workers", count)
    return found


def threads(settings: Settings, crew: str, declared: int | None) -> int:
    """How many threads a job of that crew may use: as declared, unless a setting says otherwise."""
    own = settings.crews.get(crew_key(crew), {}).get("threads", settings.pipeline_threads_per_job)
    return own or (1 if declared is None else declared)


def _check_crews(settings: Settings, crews: Sequence[Declared]) -> None:
    names = ", ".join(crew.name for crew in crews) or "none"
    marked = [crew.name for crew in crews if crew.default]
    if len(marked) > 1:
        raise ConfigurationError(f"crews {' and '.join(marked)} are both marked default; allowed is one")
    if settings.worker_processes is not None and not marked and len(crews) > 1:
        raise ConfigurationError(
            f"{settings.origins['worker_processes']}: which crew is meant? There are {names}: mark one with "
            "default=True, or set CHARGEHAND_CREW_<NAME>_WORKERS"
        )
    keys = [crew_key(crew.name) for crew in crews]
    for key, options in settings.crews.items():
        if keys.count(key) != 1:
            what = "is not there" if key not in keys else "is more than one"
            origin = settings.origins[f"crews.{key}.{next(iter(options))}"]
            raise ConfigurationError(f"{origin}: the crew {key} {what}; there are: {names}")
