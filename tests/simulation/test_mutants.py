"""That the simulator sees: every mutant of the shipped source is caught; the shipped source survives the history."""

import re
from collections.abc import Iterator

import pytest
from mutant import Hunter, Mutant, hunting
from mutants import MUTANTS
from profiles import PROFILES
from stage import Stage
from telling import tell

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def hunter() -> Iterator[Hunter]:
    with hunting() as hunt:
        yield hunt


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_mutant_is_seen(mutant: Mutant, hunter: Hunter, stage: Stage) -> None:
    found = hunter(mutant, mutant.histories())
    assert found, f"nobody sees that {mutant.name}"
    assert not re.search(r"(Type|Name|Attribute|Import|Syntax)Error\(", found[1]), f"no mutant, only nonsense: {found}"
    tell(found[0], stage)  # it was the mutation, and nothing else


def test_where_nothing_was_changed_all_promises_are_kept(hunter: Hunter) -> None:
    assert not hunter(None, [f"{profile.name}:{number}" for number, profile in enumerate(PROFILES)])


def test_no_two_mutants_are_the_same() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
