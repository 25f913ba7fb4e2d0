"""Rules over labels, playlists, and what Navidrome is told."""

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonearm.tags import rules
from tonearm.tags.navidrome import snippet
from tonearm.tags.playlist import Entry, m3u8, nsp
from tonearm.tags.rules import All, Any, Has, Not, Rule, matches, parse, positive
from tonearm.tags.settings import TextError

ROCK, CALM, FEMALE = Has("genre", "rock"), Has("mood", "calm"), Has("voice", "female")


def test_a_rule_is_read() -> None:
    # spec: TA-7
    assert parse("genre:rock and mood:calm and not voice:female") == All((ROCK, CALM, Not(FEMALE)))
    assert parse("genre:rock or mood:calm AND voice:female") == Any((ROCK, All((CALM, FEMALE))))
    assert parse("not (genre:rock or mood:calm)") == Not(Any((ROCK, CALM)))
    assert parse('genre:"indie rock"') == Has("genre", "indie rock")
    assert parse("((genre:rock))") == ROCK


WRONG = [
    ("", "rule: empty"),
    ("genre", "position 1: found 'genre', expected a term such as genre:rock"),
    (
        "genre:indie rock",
        "position 13: found 'rock', expected and, or, or the end; a label of several words needs",
    ),
    ("genre:rock and", "incomplete at the end"),
    ("and genre:rock", "position 1: found 'and'"),
    ("(genre:rock", "the bracket at position 1 is not closed"),
    ("genre:rock)", "position 11"),
    ("Genre!:rock", "position 1: group 'Genre!'"),
    ('genre:""', "position 1: label ''"),
    ("genre:rock or (not)", "position 19"),
    ("not " * 80 + "genre:rock", "simplify it"),
]


def test_a_wrong_rule_says_what_is_wrong_and_where() -> None:
    for text, said in WRONG:
        with pytest.raises(TextError) as caught:
            parse(text)
        assert said in str(caught.value)


KNOWN = {"genre": ("rock", "Hip-Hop", "post-rock"), "instrument": ("piano", "indian flute"), "mood": ("calm",)}
UNKNOWN = [
    ("genre:rok", "there is no genre 'rok'; did you mean rock"),
    ("mood:calm and not (genre:rock or genre:hiphop)", "there is no genre 'hiphop'; did you mean Hip-Hop?"),
    ("genre:piano", "there is no genre 'piano'; did you mean instrument:piano?"),
    ('genre:"Indian Flute"', 'did you mean instrument:"indian flute"?'),
    ("gender:rock", "there is no category 'gender'; did you mean genre?"),
    ("mood:xyz", "there is no mood 'xyz'; known: calm"),
    ("colour:blue", "there is no category 'colour'; known: genre, instrument, mood"),
]


def test_an_unknown_name_in_a_rule_is_an_error_with_the_nearest_names() -> None:
    # spec: TA-7
    for text, said in UNKNOWN:
        with pytest.raises(TextError) as caught:
            rules.check(parse(text), KNOWN)
        assert said in str(caught.value)
    rules.check(parse("genre:ROCK and not (genre:hip-hop or mood:Calm)"), KNOWN)


def test_a_track_fits_or_does_not() -> None:
    rule = parse("genre:rock and not voice:female")
    assert matches(rule, {"genre": ("Rock", "pop")})
    assert not matches(rule, {"genre": ("rock",), "voice": ("female",)})
    assert not matches(rule, {})


LEAF = st.sampled_from([ROCK, CALM, FEMALE, Has("genre", "indie rock"), Has("genre", '12" (\\mix)')])
RULE: st.SearchStrategy[Rule] = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: All(tuple(each))),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: Any(tuple(each))),
    ),
    max_leaves=6,
)
TRACK = st.dictionaries(
    st.sampled_from(["genre", "mood", "voice"]), st.sets(st.sampled_from(["rock", "calm", "female", "indie rock"]))
)


def negates_terms_only(rule: Rule) -> bool:
    match rule:
        case Not(inner):
            return isinstance(inner, Has)
        case All(inner) | Any(inner):
            return all(negates_terms_only(each) for each in inner)
        case Has():
            return True


@settings(max_examples=80, deadline=None)
@given(rule=RULE, track=TRACK)
def test_a_rule_survives_writing_and_turning_inside_out(rule: Rule, track: dict[str, set[str]]) -> None:
    assert parse(rules.text(rule)) == rule
    assert matches(positive(rule), track) == matches(rule, track)
    assert negates_terms_only(positive(rule))
    assert json.loads(nsp("x", rule)).keys() & {"all", "any"}


def test_a_rule_is_data_for_a_query() -> None:
    assert rules.data(parse("genre:rock and not mood:calm")) == {
        "all": [
            {"has": {"group": "genre", "label": "rock"}},
            {"not": {"has": {"group": "mood", "label": "calm"}}},
        ]
    }


def test_an_m3u_has_names_lengths_and_paths() -> None:
    # spec: TA-7
    entries = [
        Entry("/music/a/one.flac", "One", ("A", "B"), 61.6),
        Entry("/music/b/日本.mp3"),
        Entry("/music/lists/#odd.mp3", "line\nbreak"),
        Entry("/music/line\nbreak.mp3"),
        Entry("/music/bytes\udcff.mp3"),
    ]
    found = m3u8("Calm rock", entries, folder="/music/lists")
    assert found.text.splitlines() == [
        "#EXTM3U",
        "#PLAYLIST:Calm rock",
        "#EXTINF:62,A, B - One",
        "../a/one.flac",
        "#EXTINF:-1,日本",
        "../b/日本.mp3",
        "#EXTINF:-1,line break",
        "./#odd.mp3",
    ]
    assert found.left_out == ("/music/line\nbreak.mp3", "/music/bytes\udcff.mp3")
    assert "/music/a/one.flac" in m3u8("x", entries).text.splitlines()


def test_a_smart_playlist_asks_for_our_tags() -> None:
    # spec: TA-7
    made = json.loads(nsp("Calm", parse("not (genre:rock and voice:female) or mood:calm"), limit=50, order="desc"))
    assert made == {
        "name": "Calm",
        "comment": "not (genre:rock and voice:female) or mood:calm",
        "any": [
            {"any": [{"isNot": {"tonearm_genre": "rock"}}, {"isNot": {"tonearm_voice": "female"}}]},
            {"is": {"tonearm_mood": "calm"}},
        ],
        "sort": "title",
        "order": "desc",
        "limit": 50,
    }
    assert json.loads(nsp("Rock", ROCK))["all"] == [{"is": {"tonearm_genre": "rock"}}]


def test_navidromes_snippet_names_every_format() -> None:
    # spec: TA-5
    made = tomllib.loads(snippet(["mood", "genre", "mood"]))["Tags"]
    assert list(made) == ["tonearm_genre", "tonearm_mood"]
    assert made["tonearm_genre"]["Aliases"] == [
        "tonearm:genre",
        "txxx:tonearm:genre",
        "tonearm_genre",
        "----:com.apple.itunes:tonearm:genre",
    ]
    with pytest.raises(TextError, match="at least one"):
        snippet([])
