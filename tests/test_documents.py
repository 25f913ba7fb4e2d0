"""What the documents say of the code is what the code says."""

import re
import subprocess
import sys
from pathlib import Path

from chargehand.cli.main import app

ROOT = Path(__file__).parent.parent


def test_the_reference_is_what_the_code_says() -> None:  # spec: SV-4 WP-8 RP-8
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_make_target_and_command_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups if group.name}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, page
        called = set(re.findall(r"(?:`|^)chargehand ([a-z]+)", text, re.MULTILINE))
        assert called <= commands, page
