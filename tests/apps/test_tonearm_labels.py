"""A hundred raw words become a few labels in tiers, and a person has the last word."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonearm.calibration import ENOUGH, Calibration, calibrate
from tonearm.errors import LabelFileError
from tonearm.heard import MODELS
from tonearm.labels import TIERS, Book, load, merge, parse, shipped
from tonearm.tiers import NONE, Corrections, Given, judge, within

BOOK = load()
SCORES = st.dictionaries(st.sampled_from(sorted(BOOK.labels)), st.floats(0, 1), max_size=30)


def heard(**words: float) -> dict[str, list[float]]:
    """Scores of both models in which only these words (underscores for spaces, MTT_ or MSD_ before) were heard."""
    scores = {model: [0.0] * len(vocabulary) for model, vocabulary in MODELS.items()}
    for name, score in words.items():
        kind, word = name.split("_", 1)
        model = f"{kind}_musicnn"
        scores[model][MODELS[model].index(word.replace("_", " "))] = score
    return scores


def names(labels: list[Given]) -> set[str]:
    return {label.name for label in labels}


def test_the_shipped_file_makes_use_of_every_word() -> None:  # spec: TA-3
    used = {(model, place) for label in BOOK.labels.values() for model in label.places for place in label.places[model]}
    assert used == {(model, place) for model in MODELS for place in range(len(MODELS[model]))}
    assert {label.category for label in BOOK.labels.values()} == {"genre", "mood", "instrument", "voice", "era"}


def test_six_words_for_a_female_voice_are_one_label() -> None:  # spec: TA-3
    female = BOOK.labels["female voice"]
    assert sum(len(places) for places in female.places.values()) == 6
    merged = merge(BOOK, heard(MTT_woman=0.3, MTT_female_voice=0.5, MSD_female_vocalists=0.7))
    assert merged["female voice"] == pytest.approx(0.6)  # the highest of each model, on the mean
    assert merged["male voice"] == 0
    only = merge(BOOK, {"MTT_musicnn": heard(MTT_woman=0.3)["MTT_musicnn"]})
    assert only["female voice"] == 0.3
    assert "jazz" not in only  # a model that was not run says nothing


def test_a_track_is_labelled_by_thresholds() -> None:  # spec: TA-3
    labels = judge(BOOK, {"rock": 0.7, "guitar": 0.3, "80s": 0.15, "jazz": 0.05})
    assert [(label.name, label.tier) for label in labels] == [
        ("rock", "strict"),
        ("guitar", "regular"),
        ("80s", "loose"),
    ]
    assert labels[0] == Given(name="rock", category="genre", tier="strict", score=0.7)
    assert names(within(labels, "regular")) == {"rock", "guitar"}


def test_a_category_has_few_labels_the_rest_moves_down() -> None:
    genres = dict.fromkeys(("rock", "pop", "jazz", "folk", "soul", "funk"), 0.9)
    labels = judge(BOOK, {**genres, "piano": 0.9})
    assert [len(within(labels, tier)) for tier in TIERS] == [3, 4, 6]  # 2, 3 and 5 genres, and a piano


def test_of_two_that_exclude_each_other_the_stronger_stays() -> None:
    assert names(judge(BOOK, {"instrumental": 0.5, "vocal": 0.45, "male voice": 0.3})) == {"instrumental"}
    assert names(judge(BOOK, {"instrumental": 0.3, "vocal": 0.45, "male voice": 0.35})) == {"vocal", "male voice"}
    kept = judge(BOOK, {"instrumental": 0.9}, corrections=NONE.add("female voice", "voice"))
    assert names(kept) == {"female voice"}  # a person is believed


def library(*, common: float, rare: float) -> Calibration:
    """A hundred tracks: most have a good deal of guitar, a few have some sitar."""
    tracks = [{"guitar": common + at / 1000, "sitar": rare * at / 100, "rock": 0.9} for at in range(2 * ENOUGH)]
    return calibrate(BOOK.fingerprint, tracks)


def test_calibration_tells_the_special_from_the_usual() -> None:  # spec: TA-4
    calibration = library(common=0.4, rare=0.3)
    track = {"guitar": 0.43, "sitar": 0.295, "rock": 0.9}
    assert {label.name: label.tier for label in judge(BOOK, track)} == {
        "rock": "strict",
        "guitar": "strict",
        "sitar": "regular",
    }
    found = {label.name: label for label in judge(BOOK, track, calibration)}
    assert found["sitar"].tier == "strict"  # few have so much of it
    assert found["guitar"].tier == "loose"  # here, everything has that much
    assert found["rock"].tier == "strict"  # sure, though all of the library is
    percentile = found["sitar"].percentile
    assert percentile is not None
    assert percentile > 0.95


def test_the_most_of_nothing_is_nothing() -> None:  # spec: TA-4
    assert judge(BOOK, {"sitar": 0.02}, library(common=0.4, rare=0.02)) == []


def test_a_calibration_that_does_not_fit_is_not_used() -> None:
    few = calibrate(BOOK.fingerprint, [{"rock": 0.9}] * (ENOUGH - 1))
    other = calibrate("other labels", [{"rock": 0.9}] * ENOUGH)
    plain = judge(BOOK, {"rock": 0.5})
    assert judge(BOOK, {"rock": 0.5}, few) == judge(BOOK, {"rock": 0.5}, other) == plain
    assert [label.percentile for label in plain] == [None]


CALIBRATIONS = st.builds(
    lambda tracks: calibrate(BOOK.fingerprint, tracks * ENOUGH), st.lists(SCORES, min_size=1, max_size=3)
)
CORRECTIONS = st.builds(
    Corrections,
    st.dictionaries(st.sampled_from(["rock", "vocal", "krautrock"]), st.sampled_from(["genre", "voice"])),
    st.frozensets(st.sampled_from(["pop", "instrumental"])),
)


@settings(max_examples=60)
@given(scores=SCORES, calibration=st.none() | CALIBRATIONS, corrections=CORRECTIONS)
def test_strict_is_regular_and_regular_is_loose(
    scores: dict[str, float], calibration: Calibration | None, corrections: Corrections
) -> None:  # spec: TA-3
    labels = judge(BOOK, scores, calibration, corrections)
    strict, regular, loose = (names(within(labels, tier)) for tier in TIERS)
    assert strict <= regular <= loose == names(labels)
    assert len(loose) == len(labels)
    assert set(corrections.added) <= strict
    assert not corrections.removed & loose
    for tier in TIERS:
        own = [label for label in within(labels, tier) if label.by == "model"]
        for category in {label.category for label in own}:
            assert sum(label.category == category for label in own) <= BOOK.tiers[tier].most
    for label in labels:
        assert not any(
            BOOK.exclude_each_other(label.name, other.name) for other in labels if "model" in (label.by, other.by)
        )
    assert judge(BOOK, dict(reversed(scores.items())), calibration, corrections) == labels


@settings(max_examples=30)
@given(scores=SCORES)
def test_more_score_never_means_a_lower_tier_by_itself(scores: dict[str, float]) -> None:
    for name, score in scores.items():
        low, high = judge(BOOK, {name: score}), judge(BOOK, {name: min(1.0, score + 0.1)})
        assert not low or TIERS.index(high[0].tier) <= TIERS.index(low[0].tier)


def test_corrections_survive_a_new_run_and_new_labels() -> None:  # spec: TA-3
    said = NONE.add("krautrock", "genre").remove("rock")
    stored = msgspec.json.decode(msgspec.json.encode(said), type=Corrections)
    assert stored == said
    for scores in ({"rock": 0.9}, {"rock": 0.95, "pop": 0.5}):
        labels = judge(BOOK, scores, corrections=stored)
        assert "rock" not in names(labels)
        assert labels[0] == Given(name="krautrock", category="genre", tier="strict", by="person")
    assert NONE.add("rock", "genre").remove("rock") == Corrections(removed=frozenset({"rock"}))
    assert NONE.remove("rock").add("rock", "genre") == Corrections({"rock": "genre"})
    assert said.forget("rock").forget("krautrock") == NONE


def edited(old: str, new: str) -> str:
    text = shipped()
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not toml at all [", "TOML|toml|Expected|Invalid"),
        (edited("score = 0.40", "score = 0.10"), "tiers: score must not increase from strict to loose"),
        (edited("score = 0.40", "score = 4.0"), "between 0 and 1"),
        (edited("score = 0.40", "skore = 0.40"), "skore"),
        (edited("most = 5", "most = 1"), "most must not decrease"),
        (edited("[tiers.loose]", "[tiers.lose]"), "tiers|lose"),
        (
            edited('"jazz" = { MSD_musicnn = ["jazz"] }', '"jazz" = { MSD_musicnn = ["jaz"] }'),
            "genre.jazz.*no word 'jaz'",
        ),
        (edited('"jazz" = { MSD_musicnn = ["jazz"] }', '"jazz" = {}'), "genre.jazz has no words"),
        (edited('"60s" = { MSD', '"jazz" = { MSD'), "label 'jazz' is defined twice: in genre and in era"),
        (edited('["happy", "sad"]', '["happy", "sat"]'), "'sat', which is not a label"),
        (
            edited('["jazz"] }', '["jazz"], score = { strict = 0.1, regular = 0.2, loose = 0.3 } }'),
            "genre.jazz: score must not increase",
        ),
    ],
)
def test_a_label_file_that_makes_no_sense_says_where(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(LabelFileError, match=rf"(?s)mine\.toml: .*({reason})"):
        load(file)


def test_a_label_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabelFileError, match="cannot read"):
        load(tmp_path / "none.toml")


def test_people_have_labels_and_thresholds_of_their_own() -> None:  # spec: TA-3
    text = edited('"jazz" = { MSD_musicnn = ["jazz"] }', '"smooth" = { MSD_musicnn = ["jazz", "soul"] }')
    own: Book = parse(text)
    assert merge(own, heard(MSD_jazz=0.2, MSD_soul=0.4))["smooth"] == 0.4
    assert own.fingerprint != BOOK.fingerprint
    strict = '["jazz"], score = { strict = 0.9, regular = 0.8, loose = 0.1 } }'
    assert [label.tier for label in judge(parse(edited('["jazz"] }', strict)), {"jazz": 0.7})] == ["loose"]
    assert parse(edited("score = 0.40", "score = 0.41")).fingerprint == BOOK.fingerprint  # scores are the same
