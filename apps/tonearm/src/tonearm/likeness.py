"""Handler of the likeness crew: finds similar tracks. Keeps all embeddings in the worker, not in the API process."""

from typing import Any

import msgspec

from chargehand import GiveUp, Handler, Job
from tonearm import hearing
from tonearm.ear.similar import Neighbourhood
from tonearm.library import Library, home


class Alike(msgspec.Struct, frozen=True):
    """Payload: find tracks similar to this one."""

    file: int
    count: int = 20


class Finder(Handler[Alike, list[dict[str, Any]]]):
    """Finds similar tracks. Reloads the embeddings when the analysed tracks have changed."""

    def set_up(self) -> None:
        self.library = Library(home())
        self.known: tuple[int, ...] = ()

    def perform(self, job: Job[Alike]) -> list[dict[str, Any]]:
        now = (
            self.library.number("SELECT count(*) FROM heard"),
            self.library.number("SELECT max(tagged_ms) FROM file"),
            self.library.number("SELECT count(*) FROM file WHERE missing_ms IS NULL"),
        )
        if now != self.known:
            self.all, self.known = Neighbourhood(hearing.embeddings(self.library)), now
        return near_in(self.library, job.payload, self.all)

    def tear_down(self) -> None:
        self.library.close()


def near_in(library: Library, wanted: Alike, neighbourhood: Neighbourhood | None = None) -> list[dict[str, Any]]:
    """Returns the most similar tracks. Raises GiveUp if the track has not been analysed."""
    found = library.one("SELECT embedding FROM heard WHERE file = ?", wanted.file)
    if found is None:
        raise GiveUp(f"track {wanted.file} has not been analysed yet, so similar tracks are unknown")
    everybody = neighbourhood or Neighbourhood(hearing.embeddings(library))
    near = everybody.nearest(hearing.unpacked(found[0], hearing.WIDTHS), wanted.count, but=str(wanted.file))
    return [{"id": int(each.id), "likeness": each.likeness} for each in near]
