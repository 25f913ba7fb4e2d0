"""Writes the scenes of a film as chapters (WebVTT). Pure."""

from collections.abc import Iterable

from adreel.records import SceneResult

LONGEST_TITLE = 80


def stamp(seconds: float) -> str:
    """Returns a time as WebVTT writes it."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}.{rest % 1000:03d}"


def title(scene: SceneResult) -> str:
    """Returns the title of a chapter: the text on screen, else the number of the scene."""
    text = " ".join(" ".join(scene.text).split())
    if len(text) > LONGEST_TITLE:
        text = text[: LONGEST_TITLE - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") or f"Scene {scene.number}"


def webvtt(scenes: Iterable[SceneResult]) -> str:
    """Returns the chapters of a film."""
    cues = (f"{scene.number}\n{stamp(scene.start)} --> {stamp(scene.end)}\n{title(scene)}\n" for scene in scenes)
    return "\n".join(["WEBVTT\n", *cues])
