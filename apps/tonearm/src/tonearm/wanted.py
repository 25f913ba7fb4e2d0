"""Computes what should be in the tags of a file: its labels, as its folder wants them. Pure."""

import hashlib
from collections.abc import Iterable

from tonearm.heard import LISTENER
from tonearm.labels import Tier
from tonearm.tags import Labels, Settings
from tonearm.tiers import Given, within


def labels(given: Iterable[Given], tier: Tier) -> Labels:
    """Returns the labels of a track in the form in which they are written."""
    chosen = within(given, tier)
    groups: dict[str, tuple[str, ...]] = {}
    for label in chosen:
        groups[label.category] = (*groups.get(label.category, ()), label.name)
    return Labels(groups, {g.name: g.score for g in chosen if g.score is not None}, LISTENER)


def digest(wanted: Labels, settings: Settings) -> str:
    """Returns a digest of what is written, to recognise a file that is up to date; empty if nothing is written."""
    if settings.mode == "none" or (settings.mode == "minimal" and not wanted.groups):
        return ""
    scores = {name: f"{score:.3f}" for name, score in wanted.scores.items()} if settings.mode == "full" else {}
    return hashlib.sha256(repr((wanted.groups, scores, wanted.model, settings)).encode()).hexdigest()[:16]
