"""Tests that help texts fit any width of a terminal."""

import pytest
from typer.testing import CliRunner

from chargehand.cli.main import app


# spec: CL-3
@pytest.mark.parametrize("width", [60, 150])
def test_paragraphs_of_help_fill_the_lines_whatever_their_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = CliRunner().invoke(app, ["migrate", "--help"]).stdout
    paragraph = shown.partition("With --from")[2].partition("\n \n")[0].partition("╭")[0].rstrip()
    lines = [line.strip() for line in f"With --from{paragraph}".splitlines()]
    following = [line.split()[0] for line in lines[1:]]
    for line, word in zip(lines, following, strict=False):
        assert len(line) + len(word) + 1 > width - 2, f"there was room for {word!r} after {line!r}"
