"""Tests that commands, make targets, links and file paths in the documentation exist."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from chargehand.cli.main import app

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "apps").rglob("*.md")),
)


def test_the_reference_is_what_the_code_says() -> None:  # spec: SV-4 WP-8 RP-8
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_make_target_and_command_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups if group.name}
    for page in PAGES:
        text = page.read_text()
        named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, page
        called = set(re.findall(r"(?:`|^)chargehand ([a-z]+)", text, re.MULTILINE))
        assert called <= commands, page


def test_every_link_and_source_path_that_the_documents_name_exists() -> None:
    for page in PAGES:
        text = page.read_text()
        links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page
        roots = (ROOT, ROOT / "apps" / "tonearm")
        paths = re.findall(r"\b((?:src|tests|bench|chaos|examples|apps)/[\w/.-]*\w)", text)
        assert [path for path in paths if not any((at / path).exists() for at in roots) and "NNNN" not in path] == [], (
            page
        )


def test_every_module_that_the_documents_name_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"python -m (\w[\w.]*)", page.read_text()):
            assert importlib.util.find_spec(name), (page, name)
