"""The models send nothing: what onnxruntime would report about its use, and the identifier for it, are never made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "load", ["from adreel.media.ocr import Reader; Reader()", "import tonearm.ear.net_onnx"], ids=["adreel", "tonearm"]
)
def test_onnxruntime_collects_nothing(load: str, tmp_path: Path) -> None:  # spec: AR-3
    folders = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    environment = {name: text for name, text in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    done = subprocess.run(
        [sys.executable, "-c", load], env=environment | folders, cwd=tmp_path, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == []
