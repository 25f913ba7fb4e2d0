"""A short scene of the chaos test on PostgreSQL, and how longer ones evaluate their records."""

import os
import tempfile
from pathlib import Path

import pytest
from chaos.servers import MEMORY, Site, missing

if (packages := missing()) is not None:
    pytest.skip(f"the chaos test on PostgreSQL is NOT tested: pip install {packages}", allow_module_level=True)

from chaos.longer import executions_of, longest_gap
from chaos.scenes import Restart


def test_the_executions_of_a_job_are_told_apart_also_in_one_process(tmp_path: Path) -> None:
    file = tmp_path / "job"
    file.write_text(
        "start 7 70 1.0 a\nat 7 1.5\nraise 7 Cancelled\nstart 8 80 2.0 b\nstart 7 70 3.0 a\nat 8 3.5\nend 7 4.0\nat 7"
    )
    assert executions_of(file) == [("a", 1.0, 1.5), ("b", 2.0, 3.5), ("a", 3.0, 4.0)]


@pytest.mark.parametrize(
    ("moments", "gap"), [([], 10.0), ([1.0, 5.0, 9.0], 4.0), ([9.0, 1.0, 2.0], 7.0), ([-5.0, 4.0, 20.0], 6.0)]
)
def test_the_longest_gap_is_within_the_period(moments: list[float], gap: float) -> None:
    assert longest_gap(moments, 0.0, 10.0) == gap


class Brief(Restart):
    """A restart of the server with few jobs."""

    jobs, seconds = 100, 3.0


@pytest.mark.full
def test_a_restart_of_the_server_loses_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: MN-6
    for name in ("CHARGEHAND_URL", "CHAOS_SERVER", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, "")  # the scene sets some of them
    monkeypatch.delenv("CHARGEHAND_URL")
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=MEMORY) as place:
        os.chmod(place, 0o711)
        scene = Brief(Site(Path(place)), tmp_path, 1, lambda _, usual: usual)
        verdict = scene.run()
    assert verdict.good, verdict
    assert verdict.completed >= verdict.acknowledged >= Brief.jobs
    assert len(scene.times) == 2
