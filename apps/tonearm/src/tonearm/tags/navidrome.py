"""What Navidrome must be told to read Tonearm's tags: lines for its configuration file. Pure."""

from collections.abc import Iterable

from tonearm.tags.settings import TextError, check_group

HEAD = """\
# Tonearm's tags, for navidrome.toml. Afterwards run a full scan: a quick one skips files that did not change.
# Each is then a field of smart playlists; genre and mood of Navidrome's own stay what they are.
"""


def field(group: str) -> str:
    """What the labels of this group are called in Navidrome."""
    return f"tonearm_{group}"


def snippet(groups: Iterable[str]) -> str:
    """The lines for these groups, one tag each, with its name in ID3, in Vorbis comments and in MP4."""
    names = sorted({check_group(group) for group in groups})
    if not names:
        raise TextError("no groups of labels: there is nothing that Navidrome could be told to read")
    return HEAD + "".join(f"\n[Tags.{field(name)}]\nAliases = {_aliases(name)}\n" for name in names)


def _aliases(group: str) -> str:
    spelt = (f"tonearm:{group}", f"txxx:tonearm:{group}", field(group), f"----:com.apple.itunes:tonearm:{group}")
    return "[" + ", ".join(f'"{alias}"' for alias in spelt) + "]"
