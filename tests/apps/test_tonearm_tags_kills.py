"""A small run of the kill campaign; `python tests/apps/kill_writes.py 1000` is the large one."""

import os
import subprocess
import sys
from pathlib import Path

import kill_writes

SCRIPT = Path(kill_writes.__file__)


def test_twenty_kills_in_the_middle_of_writes_damage_nothing() -> None:
    # spec: TA-5
    run = subprocess.run(
        [sys.executable, SCRIPT, "20"], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "kills: 20 " in run.stdout
    assert "damaged: 0" in run.stdout


def test_the_campaign_sees_damage(tmp_path: Path) -> None:
    victim = kill_writes.prepare(tmp_path, "flac")
    whole = victim.path.read_bytes()
    for spoilt in (whole[: len(whole) // 2], whole[:-200] + bytes(200), b""):
        victim.path.write_bytes(spoilt)
        tally = kill_writes.Tally()
        kill_writes.inspect(victim, tally)
        assert len(tally.damaged) == 1, spoilt[:10]
    victim.path.write_bytes(whole)
    tally = kill_writes.Tally()
    kill_writes.inspect(victim, tally)
    assert not tally.damaged
    assert tally.found == {"nothing": 1}
