"""Other systems than Linux: importing works as far as it can, and what cannot work says so in words."""

import subprocess
import sys
from pathlib import Path

import pytest

from chargehand import Chargehand
from chargehand.errors import ConfigurationError
from chargehand.stores import open_store

WORDS = "Chargehand needs Linux .* this system is darwin: use Linux, a container, or WSL 2"
WITHOUT_FCNTL = """
import sys
sys.platform, sys.modules["fcntl"] = "win32", None
import chargehand
from chargehand import Handler, ConfigurationError
try:
    from chargehand import Chargehand
except ConfigurationError as error:
    print(error)
from chargehand.__main__ import main
main()
"""


def test_nothing_is_started_and_no_store_opened_elsewhere(  # spec: SV-1
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Chargehand(folder / "x.db")
    hand.crew("tag", "nowhere:Tagger")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigurationError, match=WORDS):
        open_store(str(folder / "x.db"))
    with pytest.raises(ConfigurationError, match=WORDS):
        hand.host()
    assert list(folder.iterdir()) == []


def test_a_module_that_another_system_lacks_is_explained() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FCNTL], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Chargehand needs Linux (pidfds, /proc, file locks), and this system is win32")
    assert (done.returncode, done.stderr) == (2, f"chargehand: {done.stdout}")
