"""The alert rules that are shipped for Prometheus, evaluated against the real metrics."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from chargehand.live.bodies import NodeBody
from chargehand.model.job import Done, Raised
from chargehand.model.records import Counts
from chargehand.model.status import NodeStatus, NodeWorker
from chargehand.model.tally import Tally
from chargehand.web.metrics import MetricFacts, exposition
from paths import ROOT

FILE: Path = ROOT / "docs" / "prometheus" / "alerts.yml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]}
Vector = dict[frozenset[tuple[str, str]], float]
"""Values by their labels."""
Samples = dict[str, Vector]
_TOKEN = re.compile(r"\s*(chargehand_\w+|\{[^}]*\}|\[\w+\]|==|>|\w+|[(),])")


class Evaluation:
    """The few parts of PromQL that the rules use; whatever else they contain is an error."""

    def __init__(self, text: str, now: Samples, before: Samples) -> None:
        self._tokens, self._now, self._before = _TOKEN.findall(text), now, before
        assert "".join(self._tokens) == re.sub(r"\s", "", text), "a part of the expression is not known here"

    def value(self) -> Vector:
        found = self._compared()
        while self._tokens:
            how = self._next("and", "unless")
            self._next("on")
            labels = self._labels()
            others = {_only(key, labels) for key in self._compared()}
            found = {key: value for key, value in found.items() if (_only(key, labels) in others) is (how == "and")}
        return found

    def _compared(self) -> Vector:
        found = self._vector()
        if not self._tokens or self._tokens[0] not in ("==", ">"):
            return found
        operator, limit = self._next("==", ">"), float(self._next())
        return {key: value for key, value in found.items() if (value == limit if operator == "==" else value > limit)}

    def _vector(self) -> Vector:
        name = self._next()
        if name == "sum":
            self._next("by")
            labels = self._labels()
            total: Vector = {}
            for key, value in self._in_brackets().items():
                total[_only(key, labels)] = total.get(_only(key, labels), 0.0) + value
            return total
        if name == "increase":
            return self._in_brackets()
        matchers = self._tokens.pop(0) if self._tokens and self._tokens[0].startswith("{") else "{}"
        if self._tokens and self._tokens[0].startswith("["):
            self._tokens.pop(0)
            before = _selected(self._before, name, matchers)
            return {key: value - before.get(key, 0.0) for key, value in _selected(self._now, name, matchers).items()}
        return _selected(self._now, name, matchers)

    def _in_brackets(self) -> Vector:
        self._next("(")
        found = self._vector()
        self._next(")")
        return found

    def _labels(self) -> set[str]:
        self._next("(")
        labels: set[str] = set()
        while (token := self._next()) != ")":
            labels |= {token} - {","}
        return labels

    def _next(self, *allowed: str) -> str:
        token = self._tokens.pop(0)
        assert not allowed or token in allowed, f"{token!r} where {allowed} is expected"
        return token


def _only(key: Iterable[tuple[str, str]], labels: set[str]) -> frozenset[tuple[str, str]]:
    found = frozenset((name, value) for name, value in key if name in labels)
    missing = labels - {name for name, _ in found}
    assert not missing, f"the metric has no label {missing}"
    return found


def _selected(samples: Samples, name: str, matchers: str) -> Vector:
    wanted = re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers)
    found = samples.get(name, {})
    for key in found:
        assert {label for label, _, _ in wanted} <= {label for label, _ in key}, f"{name} lacks a label of {matchers}"
    return {
        key: value
        for key, value in found.items()
        if all(re.fullmatch(text if how == "=~" else re.escape(text), dict(key)[label]) for label, how, text in wanted)
    }


def scraped(
    statuses: tuple[str, ...] = ("healthy", "healthy"), *, restarts: int = 0, done: int = 0, unserved: bool = False,
    queued: int = 0, node: bool = True, store: bool = True, nodes: dict[str, tuple[str, float]] | None = None,
    instance: str = "here",
) -> Samples:  # fmt: skip
    """The metrics of a crew, as Prometheus has them after a scrape. `nodes`: status and age of those on one store."""
    tally = Tally({"tag"})
    for _ in range(done):
        tally.ended("tag", Done("1"), 0.1)
    tally.ended("tag", Raised("no"), 0.1)
    workers = tuple(
        NodeWorker(component=f"worker:tag:{index}", crew="tag", status=status) for index, status in enumerate(statuses)
    )
    status = NodeStatus(
        node="n", pid=1, workers=workers, tally=tally.view(0, {"tag": restarts}),
        unserved={"tag": "no worker"} if unserved else {},
    )  # fmt: skip
    counts = [Counts(queue="tag", queued=queued, done=done)]
    shared = [
        NodeBody(name=name, status=status, machine="m", version="1", beat_age_ms=int(age * 1000))
        for name, (status, age) in (nodes or {}).items()
    ]
    facts = MetricFacts(
        status=status if node else None, counts=counts if store else None, waiting={}, since_crash={},
        shared=nodes is not None, nodes=shared,
    )  # fmt: skip
    found: Samples = {}
    for family in text_string_to_metric_families(exposition(facts)[0].decode()):
        for sample in family.samples:
            labels = frozenset({**sample.labels, "instance": instance, "job": "music"}.items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def together(*scrapes: Samples) -> Samples:
    """The metrics of several processes."""
    found: Samples = {}
    for each in scrapes:
        for name, vector in each.items():
            found.setdefault(name, {}).update(vector)
    return found


def firing(now: Samples, before: Samples | None = None) -> set[str]:
    earlier = scraped() if before is None else before
    return {name for name, rule in RULES.items() if Evaluation(rule["expr"], now, earlier).value()}


TWO = {"a": ("healthy", 1.0), "b": ("healthy", 4.0)}


def shared(instance: str = "here", done: int = 5, *, queued: int = 3, node: bool = True) -> Samples:
    """The metrics of one of several processes on a store of two nodes."""
    return scraped(queued=queued, done=done, nodes=TWO, instance=instance, node=node)


BEFORE = together(shared(queued=0), shared("there", queued=0))
CASES: dict[str, Any] = {
    "ChargehandNodeDown": (scraped(node=False), None),
    "ChargehandStoreDown": (scraped(store=False), None),
    "ChargehandNodeGone": (scraped(nodes={"a": ("healthy", 1.0), "b": ("gone", 900.0)}), None),
    "ChargehandNodeSilent": (scraped(nodes={"a": ("healthy", 1.0), "b": ("unknown", 61.0)}), None),
    "ChargehandNoProgressOnAnyNode": (together(shared(), shared("there")), BEFORE),
    "ChargehandWorkerGivenUp": (scraped(("healthy", "failed")), None),
    "ChargehandRestarts": (scraped(restarts=8), scraped(restarts=4)),
    "ChargehandCrewDown": (scraped(("crashed", "stopped")), None),
    "ChargehandQueueUnserved": (scraped(queued=3, unserved=True, done=2), None),
    "ChargehandNoProgress": (scraped(queued=3, done=5), scraped(done=5)),
}


@pytest.mark.parametrize("alert", RULES)
def test_each_alert_fires_in_its_case_and_alone(alert: str) -> None:  # spec: CF-5
    assert firing(*CASES[alert]) == {alert}


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (scraped(), None),
        (scraped(("healthy", "crashed"), restarts=3), None),
        (scraped(("asleep", "asleep")), None),
        (scraped((), restarts=9), scraped(restarts=9)),  # scaled to 0
        (scraped(queued=900, done=7), scraped(done=6)),
        (scraped(node=False, nodes=TWO), None),  # an API process beside nodes of other machines
        # One of two nodes has done a job, and the API has no node.
        (together(shared(), shared("there", 6), shared("api", node=False)), BEFORE),
    ],
)
def test_no_alert_fires_without_a_cause(now: Samples, before: Samples | None) -> None:  # spec: CF-5
    assert firing(now, before) == set()


def test_every_metric_and_status_of_the_rules_exists() -> None:  # spec: CF-5
    """A metric or a value of a label that does not exist would make a rule that never fires."""
    known = scraped(("failed",), queued=1, done=1, nodes=TWO)
    for rule in RULES.values():
        for name, matchers in re.findall(r"(chargehand_\w+)(\{[^}]*\})?", rule["expr"]):
            assert name in known
            for label, _, text in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers):
                values = {dict(key)[label] for key in known[name]}
                assert set(text.split("|")) <= values
        assert rule["annotations"]["summary"]
