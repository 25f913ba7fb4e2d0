"""Pure functions on the text of a film: joins what several key frames show, and finds text that looks like a brand."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from adreel.records import Brand, Line, SceneText

ALIKE = 0.85
"""Two lines are readings of the same text if this share of their letters agrees."""
MOST_BRANDS = 5
LEAST_CONFIDENCE = 0.45
LEAST_LETTERS = 3
LARGE = 0.18
"""Height of a line, as a share of the picture, that counts as large."""

_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?((?:[a-z0-9-]+\.)+[a-z]{2,})(?:/\S*)?", re.IGNORECASE)
_LATIN = re.compile(r"[A-Za-zÀ-ɏ]")
_PHONE = re.compile(r"\+?\d[\d\s/()-]{5,}\d")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a all and at buy by call click coming copyright day days discover end enjoy every for free from get go here "
        "hurry in is it just learn limited me more my new now of off offer on only open or order our price sale save "
        "scan scene see shop soon start stop subscribe terms thank thanks the this to today try up us visit watch we "
        "week with you your",
    )
)
"""Words of advertisements that are no names."""


def key(text: str) -> str:
    """Returns the letters and digits of a text in lower case: what two readings of it have in common."""
    return "".join(sign for sign in text.casefold() if sign.isalnum())


def are_alike(one: str, other: str) -> bool:
    """Returns whether two keys are readings of the same text; one of them may have a wrong letter."""
    if one == other:
        return True
    shorter = min(len(one), len(other))
    if shorter < 5 or abs(len(one) - len(other)) > max(2, shorter // 5):
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= ALIKE


def joined(readings: Iterable[Sequence[Line]]) -> list[Line]:
    """Returns the lines of several key frames without repetitions; of each line, the best reading."""
    kept: list[Line] = []
    for lines in readings:
        for line in lines:
            same = next((n for n, other in enumerate(kept) if are_alike(key(line.text), key(other.text))), None)
            if same is None:
                kept.append(line)
            elif line.score > kept[same].score:
                kept[same] = line
    return kept


def meaning(lines: Iterable[str]) -> str:
    """Returns the text whose meaning is looked for: without addresses and telephone numbers.

    It is empty if hardly any Latin letter is left: the model knows no other script, and would only guess.
    """
    text = " ".join(_PHONE.sub(" ", _ADDRESS.sub(" ", " ".join(lines))).split())
    return text if len(_LATIN.findall(text)) >= LEAST_LETTERS else ""


def hosts(texts: Iterable[str]) -> set[str]:
    """Returns the names in the internet addresses of texts: `nordlys` of `www.nordlys.example/spring`."""
    found = (match.group(1).lower().split(".") for text in texts for match in _ADDRESS.finditer(text))
    return {key(labels[-2]) for labels in found if len(labels) >= 2}


@dataclass(slots=True)
class _Candidate:
    text: str
    score: float
    height: float
    scenes: list[int] = field(default_factory=list[int])


def brands(texts: Sequence[SceneText]) -> list[Brand]:
    """Returns text that looks like a brand, the most likely first: large, short, repeated, or part of an address."""
    named = hosts([line.text for scene in texts for line in scene.lines] + [c for scene in texts for c in scene.codes])
    last = max((scene.scene for scene in texts if scene.lines), default=0)
    found = [(_confidence(each, named, last), each) for each in _candidates(texts)]
    likely = sorted((pair for pair in found if pair[0] >= LEAST_CONFIDENCE), key=lambda pair: -pair[0])
    return [Brand(each.text, round(sure, 2), each.scenes) for sure, each in likely[:MOST_BRANDS]]


def _candidates(texts: Sequence[SceneText]) -> Iterable[_Candidate]:
    found: dict[str, _Candidate] = {}
    for scene in texts:
        for line in scene.lines:
            if not is_name(line.text):
                continue
            own = key(line.text)
            same = own if own in found else next((each for each in found if are_alike(own, each)), own)
            known = found.setdefault(same, _Candidate(line.text, line.score, line.height))
            if line.score > known.score:
                known.text, known.score = line.text, line.score
            known.height = max(known.height, line.height)
            if scene.scene not in known.scenes:
                known.scenes.append(scene.scene)
    return found.values()


def is_name(text: str) -> bool:
    """Returns whether a line could be a name: one to three words with letters, not only common words or a number."""
    words = text.split()
    letters = sum(sign.isalpha() for sign in text)
    if not 1 <= len(words) <= 3 or not 2 <= letters <= 24 or letters < len(key(text)) / 2:
        return False
    return _ADDRESS.fullmatch(text) is None and not all(map(_is_common, words))


def _is_common(word: str) -> bool:
    return key(word) in _COMMON or not any(sign.isalpha() for sign in word)


def _confidence(candidate: _Candidate, named: set[str], last: int) -> float:
    words = candidate.text.split()
    common = sum(map(_is_common, words)) / len(words)
    points = 0.3 * min(1.0, candidate.height / LARGE)
    points += 0.25 * (len(candidate.scenes) > 1) + 0.15 * (last in candidate.scenes)
    points += 0.15 * all(word[:1].isupper() or word[:1].isdigit() for word in words)
    points += 0.35 * any(are_alike(key(candidate.text), name) for name in named)
    return min(1.0, points * (1 - common / 2))
