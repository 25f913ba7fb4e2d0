"""A hundred raw words become a few labels in tiers, and a person has the last word."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonearm.calibration import ENOUGH, STEPS, Calibration, calibrate
from tonearm.errors import LabelFileError
from tonearm.heard import MODELS
from tonearm.labels import TIERS, Book, load, merge, parse, shipped
from tonearm.tiers import NONE, Corrections, Given, certainty, judge, within

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
    labels = judge(BOOK, {"rock": 0.7, "guitar": 0.4, "80s": 0.15, "jazz": 0.05})
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
    calibration = library(common=0.4, rare=0.42)
    track = {"guitar": 0.43, "sitar": 0.415, "rock": 0.9}
    assert {label.name: label.tier for label in judge(BOOK, track)} == {
        "rock": "strict",
        "guitar": "regular",
        "sitar": "regular",
    }
    found = {label.name: label for label in judge(BOOK, track, calibration)}
    assert found["sitar"].tier == "strict"  # few have so much of it
    assert found["guitar"].tier == "loose"  # here, everything has that much
    assert found["rock"].tier == "strict"  # sure, though all of the library is
    percentile = found["sitar"].percentile
    assert percentile is not None
    assert percentile > 0.95


def test_what_is_rare_does_not_outrank_a_clearly_higher_score() -> None:  # spec: TA-9
    """Every track of the library is classical to some degree, and next to none has any jazz."""
    tracks = [{"classical": 0.36 + at / 500, "jazz": 0.24 * at / 100} for at in range(2 * ENOUGH)]
    calibration = calibrate(BOOK.fingerprint, tracks)
    lenient = parse(shipped().replace("floor = 0.40", "floor = 0.20").replace("floor = 0.30", "floor = 0.12"))
    track = {"classical": 0.40, "jazz": 0.24}
    for book in (BOOK, lenient):
        found = {label.name: label.tier for label in judge(book, track, calibration)}
        assert found["classical"] == "loose"
        assert found["jazz"] == "loose"
        sure = {label.name: label.tier for label in judge(book, {**track, "classical": 0.46}, calibration)}
        assert sure["classical"] == "regular"
        assert TIERS.index(sure["jazz"]) >= 1
    # not clearly higher: the rarity decides
    close = {label.name: label.tier for label in judge(lenient, {"classical": 0.40, "jazz": 0.31}, calibration)}
    assert close == {"classical": "loose", "jazz": "strict"}
    # what the user has decided about does not count
    removed = judge(lenient, track, calibration, NONE.remove("classical"))
    assert [(label.name, label.tier) for label in removed] == [("jazz", "strict")]


def test_the_certainty_is_said_in_words() -> None:  # spec: TA-9
    calibrated = library(common=0.4, rare=0.3)
    few = calibrate(BOOK.fingerprint, [{"rock": 0.9}])
    plain = "A label needs a score of 0.35 (bold: 0.50); if none is that certain, none is shown."
    assert certainty(BOOK, None) == certainty(BOOK, few) == plain
    assert certainty(BOOK, calibrated) == (
        "A label needs a score of 0.45 (bold: 0.60), or 0.30 in the top 10% of this library (bold: 0.40 in the "
        "top 5%); if none is that certain, none is shown."
    )


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


FEW = ["rock", "pop", "jazz", "classical", "vocal", "instrumental", "choir"]


def rarities(rare: frozenset[str]) -> Calibration:
    """A library in which every score of these labels is the highest, and every score of the others the lowest."""
    quantiles = {name: [0.0 if name in rare else 1.0] * (STEPS + 1) for name in FEW}
    return Calibration(ENOUGH, BOOK.fingerprint, quantiles)


@settings(max_examples=150)
@given(
    scores=st.dictionaries(st.sampled_from(FEW), st.floats(0.1, 0.7), min_size=2),
    calibration=st.none() | st.frozensets(st.sampled_from(FEW)).map(rarities),
    corrections=CORRECTIONS,
    lead=st.sampled_from([0, 0.05, 0.1]),
)
def test_no_label_outranks_a_clearly_higher_score_of_its_category(
    scores: dict[str, float], calibration: Calibration | None, corrections: Corrections, lead: float
) -> None:  # spec: TA-9
    book = msgspec.structs.replace(BOOK, lead=lead)
    labels = judge(book, scores, calibration, corrections)
    own = {label.name: label for label in labels if label.by == "model"}
    decided = corrections.removed | corrections.added.keys()
    for high, score in scores.items():
        excluded = any(book.exclude_each_other(high, label.name) for label in labels)
        if high in decided or (excluded and high not in own):
            continue
        rank = TIERS.index(own[high].tier) if high in own else len(TIERS)
        for low in own.values():
            if (
                low.category == book.labels[high].category
                and score >= scores[low.name] + lead
                and score > scores[low.name]
            ):
                assert TIERS.index(low.tier) >= rank, (high, low)
    for label in own.values():
        if label.tier != "loose":
            assert label.score is not None
            assert label.score >= book.tiers["regular"].floor


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
        (edited("score = 0.50", "score = 0.10"), "tiers: score must not increase from strict to loose"),
        (edited("score = 0.50", "score = 4.0"), "between 0 and 1"),
        (edited("score = 0.50", "skore = 0.40"), "skore"),
        (edited("lead = 0.10", "lead = 10"), "lead must be between 0 and 1"),
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
    assert parse(edited("score = 0.50", "score = 0.51")).fingerprint == BOOK.fingerprint  # scores are the same
