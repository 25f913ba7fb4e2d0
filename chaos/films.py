"""Makes the short films of the chaos test of Adreel: `python -m chaos.films FOLDER`. Imports numpy and PyAV."""

import sys
from pathlib import Path

from adreel.synth import Card, advert

NAVY, SAND, BRICK, GREEN = (18, 30, 74), (236, 226, 205), (150, 42, 32), (20, 80, 40)
FILMS = {
    "shoes.mp4": (Card(1.0, ("NORDLYS",), paper=NAVY), Card(1.0, ("Trail shoes",), ink=(20, 20, 20), paper=SAND)),
    "pizza.mkv": (
        Card(1.0, ("Fresh pizza",), paper=BRICK), Card(1.0, ("Order now",), paper=GREEN, qr="https://p.example"),
    ),
    "flights.webm": (Card(1.0, ("Cheap flights",), paper=NAVY), Card(1.0, ("Book today",), paper=BRICK)),
    "silent.avi": (Card(1.5, (), paper=GREEN),),
}  # fmt: skip
"""The scenes of each film; the last one has no text, so that its stage ocr has little to do."""


def main() -> None:
    """Writes the films into the folder."""
    for name, cards in FILMS.items():
        advert(Path(sys.argv[1]) / name, cards, size=(320, 180), rate=10)


if __name__ == "__main__":
    main()
