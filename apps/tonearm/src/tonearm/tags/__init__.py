"""Reads tags of audio files, writes labels without changing anything else, and removes them again."""

from tonearm.tags.outcome import Outcome, Refused, Unchanged, Why, Written
from tonearm.tags.plan import Change, Plan
from tonearm.tags.read import Tags, Unreadable, read
from tonearm.tags.settings import Labels, Mode, Onto, Settings, TextError, parse_onto, parse_ontos
from tonearm.tags.sweep import Swept, sweep, sweep_folder
from tonearm.tags.undo import undo
from tonearm.tags.write import preview, write

__all__ = [
    "Change",
    "Labels",
    "Mode",
    "Onto",
    "Outcome",
    "Plan",
    "Refused",
    "Settings",
    "Swept",
    "Tags",
    "TextError",
    "Unchanged",
    "Unreadable",
    "Why",
    "Written",
    "parse_onto",
    "parse_ontos",
    "preview",
    "read",
    "sweep",
    "sweep_folder",
    "undo",
    "write",
]
