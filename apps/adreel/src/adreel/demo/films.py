"""Makes the films of the demo: `python -m adreel.demo.films FOLDER`. Imports numpy and PyAV; runs on its own."""

import sys
from pathlib import Path

from adreel.synth import ADVERT, Card, advert

PIZZA = (
    Card(2.0, ("BELLA NAPOLI",), paper=(150, 30, 30)),
    Card(2.4, ("Fresh pizza", "delivered in 20 minutes"), ink=(30, 20, 20), paper=(240, 220, 180)),
    Card(2.0, ("Order now",), paper=(20, 80, 40), qr="https://bella.example/menu"),
    Card(2.0, ("BELLA NAPOLI",), paper=(150, 30, 30)),
)
FLIGHTS = (
    Card(2.0, ("SONNENFLUG",), paper=(10, 90, 150)),
    Card(2.4, ("Cheap flights", "to the sun from 39"), ink=(40, 20, 0), paper=(240, 190, 90)),
    Card(2.0, ("Hotels and beaches",), paper=(0, 110, 120)),
    Card(2.0, ("Book your holiday",), ink=(20, 20, 20), paper=(200, 230, 250)),
)
FILMS = {"nordlys-spring.mp4": ADVERT, "bella-napoli.mkv": PIZZA, "sonnenflug.webm": FLIGHTS}
BROKEN = "broken-export.mp4"
"""A film whose end is missing."""


def main() -> None:
    """Writes the films into the folder."""
    folder = Path(sys.argv[1])
    for name, cards in FILMS.items():
        advert(folder / name, cards)
    whole = (folder / "nordlys-spring.mp4").read_bytes()
    (folder / BROKEN).write_bytes(whole[: len(whole) // 3])


if __name__ == "__main__":
    main()
