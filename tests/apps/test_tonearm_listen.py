"""The networks hear what the original heard, in numpy and in onnxruntime."""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
from musicnn_signal import RATE, signal

from tonearm import weights
from tonearm.ear.listen import Ear
from tonearm.ear.nets import choose, onnx_file
from tonearm.errors import TonearmError, Undecodable
from tonearm.heard import LISTENER, MODELS, Heard

REFERENCE = json.loads((Path(__file__).parent / "data" / "musicnn_reference.json").read_text())


@cache
def ear(provider: str, folder: Path) -> Ear:
    return Ear(provider=provider, cache=folder)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def song(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("song") / "signal.wav"
    soundfile.write(path, signal(), RATE, subtype="PCM_16")
    return path


def worst(heard: Heard, field: str) -> float:
    return max(float(np.abs(np.subtract(heard.scores[model], REFERENCE[model][field])).max()) for model in MODELS)


@pytest.mark.full
@pytest.mark.parametrize("provider", ["numpy", "cpu"])
def test_the_networks_hear_what_the_original_heard(song: Path, weights_folder: Path, provider: str) -> None:
    # spec: TA-3
    heard = ear(provider, weights_folder).listen(song, patches=None)
    assert worst(heard, "mean") < 1e-4
    assert (heard.patches, heard.duration, heard.decoder, heard.listener) == (10, 30, "soundfile", LISTENER)
    assert {model: len(numbers) for model, numbers in heard.embedding.items()} == dict.fromkeys(MODELS, 200)
    first = ear(provider, weights_folder).listen(song, patches=1)
    assert worst(first, "first_patch") < 1e-4
    assert worst(first, "mean") > 0.01  # so a wrong one would be noticed


def test_both_ways_of_computing_agree(song: Path, weights_folder: Path) -> None:
    one, other = (ear(provider, weights_folder).listen(song, patches=2) for provider in ("numpy", "cpu"))
    for model in MODELS:
        assert np.allclose(one.scores[model], other.scores[model], atol=1e-5)
        assert np.allclose(one.embedding[model], other.embedding[model], atol=1e-4)


def test_the_words_are_those_of_the_models() -> None:
    for model, words in MODELS.items():
        assert list(words) == REFERENCE[model]["labels"]


def test_progress_is_told_and_may_end_it(song: Path, weights_folder: Path) -> None:  # spec: TA-3
    told: list[tuple[float, float | None, str]] = []
    ear("cpu", weights_folder).listen(song, lambda *words: told.append(words), patches=3)
    assert [words for words in told if words[2] == "listen"] == [(done, 3, "listen") for done in range(4)]
    decoding = [words for words in told if words[2] == "decode"]
    assert decoding[0] == (0, 30, "decode")
    assert len(decoding) > 3
    assert decoding == sorted(decoding)

    class Cancelled(Exception):
        pass

    def cancel(done: float, total: float | None, stage: str) -> None:
        if stage == "listen" and done == 1:
            raise Cancelled

    with pytest.raises(Cancelled):
        ear("cpu", weights_folder).listen(song, cancel, patches=3)


def test_a_very_short_track_and_a_broken_one(weights_folder: Path, tmp_path: Path) -> None:  # spec: TA-6
    soundfile.write(tmp_path / "short.wav", signal()[:100], RATE, subtype="PCM_16")
    heard = ear("cpu", weights_folder).listen(tmp_path / "short.wav")
    assert heard.patches == 1
    assert all(0 <= score <= 1 for scores in heard.scores.values() for score in scores)
    (tmp_path / "broken.mp3").write_text("no")
    with pytest.raises(Undecodable):
        ear("cpu", weights_folder).listen(tmp_path / "broken.mp3")


def test_the_onnx_file_is_kept_where_it_can_be(weights_folder: Path, tmp_path: Path) -> None:
    wheel = tmp_path / weights.FILE
    wheel.symlink_to(weights_folder / weights.FILE)
    built = onnx_file(wheel, "MTT_musicnn")
    assert isinstance(built, Path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([built.name, wheel.name])
    content = built.read_bytes()
    built.unlink()
    built.mkdir()  # now nothing can be placed there
    assert onnx_file(wheel, "MTT_musicnn") == content
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([built.name, wheel.name])


def test_what_computes_depends_on_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("numpy") == "numpy"
    assert choose("cpu") == "cpu"
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    assert choose("auto") == "cpu"
    with pytest.raises(TonearmError, match="onnxruntime-gpu"):
        choose("gpu")
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider"])
    assert choose("auto") == choose("gpu") == "gpu"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert choose("auto") == "numpy"
    with pytest.raises(TonearmError, match=r"tonearm\[onnx\]"):
        choose("cpu")


def test_a_gpu_that_cannot_be_used_is_not_said_to_be(weights_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime names CUDA wherever it was built with it, and falls back to the CPU where there is none."""
    monkeypatch.setattr("tonearm.ear.net_onnx.gpu_is_there", lambda: True)
    monkeypatch.setattr("tonearm.ear.net_onnx.CUDA", "NoSuchExecutionProvider")
    with pytest.warns(UserWarning, match="NoSuchExecutionProvider"):
        found = Ear(provider="auto", cache=weights_folder)
    assert found.provider == "cpu"
    assert {net.batch for net in found.nets.values()} == {1}
    refused = pytest.raises(TonearmError, match="could not use the GPU")
    with pytest.warns(UserWarning, match="NoSuchExecutionProvider"), refused:
        Ear(provider="gpu", cache=weights_folder)
