"""What a mutant is: a patch of one file, and where it should show."""

import msgspec
from profiles import PROFILES
from scenarios import SCENARIOS


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One patch."""

    name: str
    file: str
    old: str
    new: str
    profile: str
    """The kind of history in which it shows; or a scenario."""
    first: int | None = None
    """A seed that shows it, to begin with."""
    seeds: int = 60
    """How many histories of that kind are tried before the mutant counts as unseen."""
    folder: str = "src/chargehand"


def histories_of(mutant: Mutant) -> list[str]:
    """The histories in which the mutant should show: seeds, or a scenario."""
    if mutant.profile in SCENARIOS:
        return [mutant.profile]
    names = [profile.name for profile in PROFILES]
    seeds = [names.index(mutant.profile) + n * len(names) for n in range(mutant.seeds)]
    return [str(seed) for seed in ([] if mutant.first is None else [mutant.first]) + seeds]
