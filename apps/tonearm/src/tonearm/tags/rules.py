"""Parses and evaluates rules over labels: `genre:rock and mood:calm and not voice:female`. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tonearm.tags.settings import TextError, check_group, check_label

DEEPEST = 50
QUOTED, BACKSLASHED = re.compile(r'(["\\])'), r"\\\1"
TOKEN = re.compile(r'\s+|(?P<mark>[()])|(?P<term>[^\s:()"]+:(?:"(?:[^"\\]|\\.)*"|[^\s()"]+))|(?P<word>[^\s()]+)')


@dataclass(frozen=True, slots=True)
class Has:
    """Matches a track with this label in this group, ignoring case."""

    group: str
    label: str


@dataclass(frozen=True, slots=True)
class Not:
    """Matches if the rule does not match."""

    rule: "Rule"


@dataclass(frozen=True, slots=True)
class All:
    """Matches if all rules match."""

    rules: tuple["Rule", ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Matches if at least one rule matches."""

    rules: tuple["Rule", ...]


Rule = Has | Not | All | Any


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a rule and its position."""

    text: str
    at: int
    is_term: bool


def parse(text: str) -> Rule:
    """Parses a rule of terms `group:label`, and, or, not, brackets. Raises TextError with the problem."""
    tokens = [
        Token(found[0], found.start() + 1, found.lastgroup == "term")
        for found in TOKEN.finditer(text)
        if found.lastgroup is not None
    ]
    if not tokens:
        raise TextError("rule: empty; write for example genre:rock and not voice:female")
    rule, rest = _any(tokens, 0)
    if rest:
        raise _expected("and, or, or the end", rest)
    return rule


def check(rule: Rule, known: Mapping[str, Collection[str]]) -> None:
    """Raises TextError with the nearest names if the rule contains a group, or a label of a group, that is unknown."""
    for term in _terms(rule):
        if term.group not in known:
            raise TextError(f"rule: there is no category {term.group!r}; {_nearest(term.group, known)}")
        names = {label.casefold() for label in known[term.group]}
        if term.label.casefold() not in names:
            elsewhere = [
                text(Has(group, label))
                for group, labels in known.items()
                for label in labels
                if label.casefold() == term.label.casefold()
            ]
            advice = f"did you mean {elsewhere[0]}?" if elsewhere else _nearest(term.label, known[term.group])
            raise TextError(f"rule: there is no {term.group} {term.label!r}; {advice}")


def _terms(rule: Rule) -> Iterator[Has]:
    match rule:
        case Has():
            yield rule
        case Not(inner):
            yield from _terms(inner)
        case All(rules) | Any(rules):
            for each in rules:
                yield from _terms(each)


def _nearest(name: str, known: Collection[str]) -> str:
    """Returns the names that are spelt most alike, or all names."""
    spelt = {each.casefold(): each for each in known}
    near = [spelt[each] for each in get_close_matches(name.casefold(), spelt, n=3)]
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(known))}"


def matches(rule: Rule, labels: Mapping[str, Collection[str]]) -> bool:
    """Returns whether a track with these labels matches the rule."""
    match rule:
        case Has(group, label):
            return label.casefold() in {each.casefold() for each in labels.get(group, ())}
        case Not(inner):
            return not matches(inner, labels)
        case All(rules):
            return all(matches(each, labels) for each in rules)
        case Any(rules):
            return any(matches(each, labels) for each in rules)


def positive(rule: Rule, *, negate: bool = False) -> Rule:
    """Returns an equivalent rule in which every `not` is directly before a term, for queries that require this."""
    match rule:
        case Has():
            return Not(rule) if negate else rule
        case Not(inner):
            return positive(inner, negate=not negate)
        case All(rules):
            inner_rules = tuple(positive(each, negate=negate) for each in rules)
            return Any(inner_rules) if negate else All(inner_rules)
        case Any(rules):
            inner_rules = tuple(positive(each, negate=negate) for each in rules)
            return All(inner_rules) if negate else Any(inner_rules)


def data(rule: Rule) -> dict[str, object]:
    """Returns the rule as plain data, for a query or for JSON."""
    match rule:
        case Has(group, label):
            return {"has": {"group": group, "label": label}}
        case Not(inner):
            return {"not": data(inner)}
        case All(rules):
            return {"all": [data(each) for each in rules]}
        case Any(rules):
            return {"any": [data(each) for each in rules]}


def text(rule: Rule) -> str:
    """Returns the rule as text that parses to the same rule."""
    match rule:
        case Has(group, label):
            plain = not re.search(r'[\s()"\\]', label)
            return f"{group}:{label}" if plain else f'{group}:"{re.sub(QUOTED, BACKSLASHED, label)}"'
        case Not(inner):
            return f"not {_bracketed(inner)}"
        case All(rules):
            return " and ".join(_bracketed(each) for each in rules)
        case Any(rules):
            return " or ".join(_bracketed(each) for each in rules)


def _bracketed(rule: Rule) -> str:
    return f"({text(rule)})" if isinstance(rule, All | Any) else text(rule)


def _any(tokens: list[Token], depth: int) -> tuple[Rule, list[Token]]:
    rule, rest = _all(tokens, depth)
    rules = [rule]
    while rest and rest[0].text.lower() == "or":
        rule, rest = _all(rest[1:], depth)
        rules.append(rule)
    return (Any(tuple(rules)) if len(rules) > 1 else rules[0]), rest


def _all(tokens: list[Token], depth: int) -> tuple[Rule, list[Token]]:
    rule, rest = _one(tokens, depth)
    rules = [rule]
    while rest and rest[0].text.lower() == "and":
        rule, rest = _one(rest[1:], depth)
        rules.append(rule)
    return (All(tuple(rules)) if len(rules) > 1 else rules[0]), rest


def _one(tokens: list[Token], depth: int) -> tuple[Rule, list[Token]]:
    if depth > DEEPEST:
        raise TextError(f"rule: more than {DEEPEST} nested brackets and nots; simplify it")
    if not tokens:
        raise TextError("rule: incomplete at the end; a term such as genre:rock must follow")
    first, rest = tokens[0], tokens[1:]
    if first.text.lower() == "not":
        rule, rest = _one(rest, depth + 1)
        return Not(rule), rest
    if first.text == "(":
        rule, rest = _any(rest, depth + 1)
        if not rest or rest[0].text != ")":
            raise TextError(f"rule: the bracket at position {first.at} is not closed")
        return rule, rest[1:]
    if not first.is_term:
        raise _expected("a term such as genre:rock", tokens)
    return _term(first), rest


def _term(token: Token) -> Has:
    group, _, label = token.text.partition(":")
    try:
        if label.startswith('"'):
            label = re.sub(r"\\(.)", r"\1", label[1:-1])
        return Has(check_group(group), check_label(label))
    except TextError as error:
        raise TextError(f"rule, position {token.at}: {error}") from None


def _expected(what: str, rest: list[Token]) -> TextError:
    hint = '; a label of several words needs quotes: genre:"indie rock"' if rest[0].text not in "()" else ""
    return TextError(f"rule, position {rest[0].at}: found {rest[0].text!r}, expected {what}{hint}")
