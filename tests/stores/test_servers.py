"""A part of the conformance suite against other servers than the newest; `make test-servers` runs all of it."""

import os
import subprocess
import sys

import pytest

import pgserver
import servers
from paths import ROOT

pytestmark = pytest.mark.full

PART = ("test_claim", "test_settle", "test_turn", "test_nodes", "test_stateful", "test_postgres")
"""The files that use most statements, the stateful model among them (without its 60 histories)."""


# spec: ST-1, ST-3
@pytest.mark.parametrize("server", [servers.debian(servers.OLDEST), servers.pooler()], ids=lambda each: each.name)
def test_a_store_on_another_server_keeps_the_contract(server: servers.Server) -> None:
    if (packages := pgserver.missing()) is not None:
        pytest.skip(f"{server.name} is NOT tested: pip install {packages}")
    if not server.environment:
        pytest.skip(f"{server.name} is NOT tested, it is not installed: {server.missing}")
    left_out = ("PYTEST_", "CHARGEHAND_TEST_RUN")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    environment |= server.environment
    files = [f"tests/stores/{name}.py" for name in PART]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files, "-k", "postgres and not 60"],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
