"""Entry point of `python -m tonearm` and of the console script."""

from tonearm.cli.main import run

if __name__ == "__main__":
    run()
