"""Generates the configuration that Navidrome needs to read Tonearm's tags. Pure."""

from collections.abc import Iterable

from tonearm.tags.settings import TextError, check_group

HEAD = """\
# Tonearm's tags, for navidrome.toml. Run a full scan afterwards: a quick scan skips unchanged files.
# Each tag is then a field of smart playlists. Navidrome's own genre and mood do not change.
"""


def field(group: str) -> str:
    """Returns the name of the labels of this group in Navidrome."""
    return f"tonearm_{group}"


def snippet(groups: Iterable[str]) -> str:
    """Returns the lines for these groups: one tag each, with its names in ID3, Vorbis comments and MP4."""
    names = sorted({check_group(group) for group in groups})
    if not names:
        raise TextError("no groups of labels: Navidrome needs at least one")
    return HEAD + "".join(f"\n[Tags.{field(name)}]\nAliases = {_aliases(name)}\n" for name in names)


def _aliases(group: str) -> str:
    spelt = (f"tonearm:{group}", f"txxx:tonearm:{group}", field(group), f"----:com.apple.itunes:tonearm:{group}")
    return "[" + ", ".join(f'"{alias}"' for alias in spelt) + "]"
