"""Entry point of `python -m adreel` and of the console script."""

from adreel.cli.main import run

if __name__ == "__main__":
    run()
