"""Tests that help texts fit any width of a terminal."""

import pytest
from typer.testing import CliRunner

from chargehand.cli.main import app, url_first


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


# spec: CL-3
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", "--json", "--url", "http://a:1"], ["--url", "http://a:1", "status", "--json"]),
        (["jobs", "list", "--url=http://a:1", "--limit", "3"], ["--url=http://a:1", "jobs", "list", "--limit", "3"]),
        (["--url", "http://a:1", "status"], ["--url", "http://a:1", "status"]),
        (["jobs", "enqueue", "tag", "--", "--url", "x"], ["jobs", "enqueue", "tag", "--", "--url", "x"]),
        (["status", "--url"], ["status", "--url"]),
        ([], []),
    ],
)
def test_the_address_of_a_server_may_follow_the_command(words: list[str], expected: list[str]) -> None:
    assert url_first(words) == expected


# spec: CL-3
def test_the_help_lists_every_command_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert [group for group in ("Run", "Look", "Jobs", "Control", "Admin") if f"─ {group} ─" not in shown] == []
    assert "─ Commands ─" not in shown
