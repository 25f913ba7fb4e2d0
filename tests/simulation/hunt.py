"""`python hunt.py 1 2 3`: the first of these histories that breaks a promise, and which; nothing if none does."""

import sys

from clockwork import Broken
from scenarios import SCENARIOS
from simulator import simulate
from stage import Stage


def tell(history: str, stage: Stage) -> None:
    """A seed's history, or a scenario."""
    if history.isdecimal():
        simulate(int(history), stage)
        return
    try:
        SCENARIOS[history](stage)
    except Broken:
        raise
    except Exception as error:  # it ended otherwise than it must
        raise Broken(f"{history}: {error!r}") from error


def main(histories: list[str]) -> None:
    stage = Stage()
    try:
        for history in histories:
            try:
                tell(history, stage)
            except Broken as broken:
                sys.stdout.write(f"{history}\n{str(broken).splitlines()[0]}\n")
                return
    finally:
        stage.close()


if __name__ == "__main__":
    main(sys.argv[1:])
