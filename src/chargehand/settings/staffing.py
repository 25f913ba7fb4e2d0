"""The number of workers of each crew, and of threads per worker."""

from collections.abc import Sequence
from dataclasses import dataclass

from chargehand.errors import ConfigurationError
from chargehand.model.spelling import nearest
from chargehand.settings.known import Settings, crew_key

DEFAULT_WORKERS = 2
"""The number of workers of the default crew, or of the only one, if it is not set."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A crew as the application declared it."""

    name: str
    workers: int | None
    default: bool = False


def workers(settings: Settings, crews: Sequence[Declared]) -> dict[str, int]:
    """Returns the number of workers of each crew: as declared, unless a setting overrides it."""
    _check_crews(settings, crews)
    marked = [crew.name for crew in crews if crew.default]
    main = marked[0] if marked else crews[0].name if len(crews) == 1 else None
    found: dict[str, int] = {}
    for crew in crews:
        usual = DEFAULT_WORKERS if crew.name == main else 1
        count = usual if crew.workers is None else crew.workers
        if crew.name == main and settings.worker_processes is not None:
            count = settings.worker_processes
        found[crew.name] = settings.crews.get(crew_key(crew.name), {}).get("workers", count)
    return found


def threads(settings: Settings, crew: str, declared: int | None) -> int:
    """Returns the number of threads that a job of this crew may use: as declared, unless a setting overrides it."""
    own = settings.crews.get(crew_key(crew), {}).get("threads", settings.pipeline_threads_per_job)
    return own or (1 if declared is None else declared)


def _check_crews(settings: Settings, crews: Sequence[Declared]) -> None:
    """Raises ConfigurationError if settings name unknown or ambiguous crews."""
    names = ", ".join(crew.name for crew in crews) or "none"
    marked = [crew.name for crew in crews if crew.default]
    if len(marked) > 1:
        raise ConfigurationError(f"crews {' and '.join(marked)} are both marked default; only one may be")
    if settings.worker_processes is not None and not marked and len(crews) > 1:
        raise ConfigurationError(
            f"{settings.origins['worker_processes']}: no crew is the default of {names}: mark one with "
            "default=True, or set CHARGEHAND_CREW_<NAME>_WORKERS"
        )
    keys = [crew_key(crew.name) for crew in crews]
    for key, options in settings.crews.items():
        if keys.count(key) != 1:
            what = "is ambiguous" if key in keys else "does not exist"
            origin = settings.origins[f"crews.{key}.{next(iter(options))}"]
            meant = nearest(key.lower(), [crew.name for crew in crews])
            error = ConfigurationError(f"{origin}: the crew {key} {what}; there are: {names}{meant}")
            error.has_place = True
            raise error
