"""`python -m tonearm`, and the console script."""

from tonearm.cli.main import run

if __name__ == "__main__":
    run()
