"""The nearest tracks are the nearest, whatever the number of them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tonearm.ear import similar
from tonearm.ear.similar import Neighbourhood, direction
from tonearm.heard import EMBEDDING, MODELS

Embedding = dict[str, list[float]]


def embedding(numbers: NDArray[np.float64]) -> Embedding:
    return {model: part.tolist() for model, part in zip(MODELS, np.split(numbers, len(MODELS)), strict=True)}


@pytest.fixture(scope="module")
def tracks() -> dict[str, Embedding]:
    rng = np.random.default_rng(7)
    return {f"t{at}": embedding(rng.normal(size=EMBEDDING * len(MODELS))) for at in range(300)}


def test_the_nearest_are_found_in_chunks_as_without(
    tracks: dict[str, Embedding], monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: TA-7
    monkeypatch.setattr(similar, "CHUNK", 64)
    wanted = direction(tracks["t5"])
    truth = sorted(tracks, key=lambda name: -float(direction(tracks[name]) @ wanted))
    found = Neighbourhood(tracks.items()).nearest(tracks["t5"], 10)
    assert [neighbour.id for neighbour in found[:5]] == truth[:5]
    assert found[0].id == "t5"
    assert found[0].likeness == pytest.approx(1, abs=1e-3)
    assert [neighbour.likeness for neighbour in found] == sorted((n.likeness for n in found), reverse=True)


def test_a_track_is_not_its_own_neighbour(tracks: dict[str, Embedding]) -> None:
    found = Neighbourhood(tracks.items()).nearest(tracks["t5"], 3, but="t5")
    assert len(found) == 3
    assert "t5" not in [neighbour.id for neighbour in found]
    assert len(Neighbourhood(list(tracks.items())[:2]).nearest(tracks["t0"], 20, but="t0")) == 1


def test_loudness_of_an_embedding_does_not_count_and_every_model_does() -> None:
    ones, zeros = np.ones(EMBEDDING), np.zeros(EMBEDDING)
    quiet, loud = (embedding(np.concatenate([ones * size, -ones])) for size in (1, 9))
    assert np.allclose(direction(quiet), direction(loud))
    assert np.linalg.norm(direction(quiet)) == pytest.approx(1)
    (half,) = Neighbourhood([("a", embedding(np.concatenate([ones, zeros])))]).nearest(quiet)
    assert half.likeness == pytest.approx(0.5, abs=1e-3)


def test_an_empty_library_has_no_neighbours(tracks: dict[str, Embedding]) -> None:
    assert Neighbourhood([]).nearest(tracks["t0"]) == []
