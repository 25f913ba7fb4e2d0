"""What the likeness crew does: finds tracks that sound alike. It holds all embeddings; the API does not."""

from typing import Any

import msgspec

from chargehand import GiveUp, Handler, Job
from tonearm import hearing
from tonearm.ear.similar import Neighbourhood
from tonearm.library import Library, home


class Alike(msgspec.Struct, frozen=True):
    """Which tracks are like this one?"""

    file: int
    count: int = 20


class Finder(Handler[Alike, list[dict[str, Any]]]):
    """Keeps the neighbourhood until more was heard."""

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
    """The tracks most like that one; GiveUp if it was not heard yet."""
    found = library.one("SELECT embedding FROM heard WHERE file = ?", wanted.file)
    if found is None:
        raise GiveUp(f"track {wanted.file} was not heard yet: nobody can say what sounds like it")
    everybody = neighbourhood or Neighbourhood(hearing.embeddings(library))
    near = everybody.nearest(hearing.unpacked(found[0], hearing.WIDTHS), wanted.count, but=str(wanted.file))
    return [{"id": int(each.id), "likeness": each.likeness} for each in near]
