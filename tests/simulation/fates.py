"""What becomes of what a worker is handed: jobs, and looks into the application's table. Drawn by the seed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from actors import Worker
from performances import Claims, Performances

from chargehand.model.job import Claim
from chargehand.model.ledger import Begun
from chargehand.model.search import Look

if TYPE_CHECKING:
    from stage import World


class Fates(Performances):
    """See the module, and those of its parents."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.poison: set[str] = set()
        self.killers: set[str] = set()
        """Jobs that end the node."""
        self.bad: set[str] = set()
        """Jobs that raise whoever performs them."""
        self.upstream_down: set[str] = set()
        """Crews of which every job raises."""
        self.endless = set()
        self.scripted: dict[str, Callable[[Worker, Claim], None]] = {}
        """Jobs, or items, whose fate is told by a scenario instead of drawn."""

    def begin(self, worker: Worker, todo: Begun) -> None:
        """How this goes."""
        if isinstance(todo, Look):
            self._look(worker, todo)
            return
        claims = todo if isinstance(todo, list) else [todo]
        for claim in claims:
            self._world.application.begins(worker, claim)
        told = {claim.id: self.scripted.get(claim.item or claim.id) for claim in claims}
        drawn = [claim for claim in claims if told[claim.id] is None]
        for claim in claims:
            script = told[claim.id]
            if script is not None:
                script(worker, claim)
        if drawn:
            self._perform(worker, drawn)

    def _perform(self, worker: Worker, claims: Claims) -> None:
        kind = "done" if self.calm else self._draw(self._world.profile.jobs)
        if any(self._crashes(claim) for claim in claims):
            kind = "crash"
        elif worker.sick:
            kind = "sick"
        elif worker.crew in self.upstream_down or any(claim.id in self.bad for claim in claims):
            kind = "raised"
        if any(claim.id in self.killers for claim in claims):
            kind = "kills the node"
        longest = [claim.timeout_ms for claim in claims if claim.timeout_ms is not None]
        if kind == "stalled" and longest and max(longest) > 10**6:
            kind = "done"  # would only make the history long
        self._world.tally[f"job: {kind}"] += 1
        if len(claims) > 1:
            self._world.tally["several at once"] += 1
        took = self._chance.choice(self._world.profile.takes)
        if self.calm:
            took = min(took, 1.0)
        self._performances[kind](self, worker, claims, took)

    def _crashes(self, claim: Claim) -> bool:
        rows = self._world.application.rows
        return claim.id in self.poison or (claim.item is not None and rows[claim.item].kind == "bad")

    # looking

    def _look(self, worker: Worker, look: Look) -> None:
        kind = "quick" if self.calm else self._draw(self._world.profile.looks)
        self._world.tally[f"look: {kind}"] += 1
        self._looks[kind](self, worker, look)

    def _reads(self, worker: Worker, look: Look, before: float, after: float) -> None:
        """It reads the table then, and says so much later what it found: meanwhile things happen."""

        def read() -> None:
            page = self._world.profile.page
            items = self._world.application.discover(worker.crew, look.after, page)
            more = items is not None and len(items) == page
            self._after(worker, after, lambda: worker.look is look and worker.found(items, more))

        self._after(worker, before, read)

    def _look_quick(self, worker: Worker, look: Look) -> None:
        self._reads(worker, look, 0.001, self._chance.choice([0.001, 0.001, 0.2]))

    def _look_slow(self, worker: Worker, look: Look) -> None:
        self._reads(worker, look, self._chance.choice([0.01, 4.0]), self._chance.choice([1.0, 8.0, 25.7]))

    def _look_crash(self, worker: Worker, look: Look) -> None:
        self._after(worker, self._chance.choice([0.001, 1.0]), lambda: worker.die(signal=11))

    def _look_hangs(self, worker: Worker, look: Look) -> None:
        worker.stuck = True

    _looks: ClassVar[dict[str, Callable[..., None]]] = {
        "quick": _look_quick, "slow": _look_slow, "crash": _look_crash, "hangs": _look_hangs,
    }  # fmt: skip
