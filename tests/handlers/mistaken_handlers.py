"""Handlers with mistakes of beginners."""

from chargehand import Chargehand, Handler, Job


class StartsNode(Handler[bool, str]):
    """Hosts a node while it performs a job, as a script does."""

    def perform(self, job: Job[bool]) -> str:
        if job.payload:
            hand = Chargehand("other.db")
            hand.crew("other", "mistaken_handlers:StartsNode")
            with hand.running():
                pass
        return "done"


class DiscoversAll(Handler[None, None]):
    """Has no parameters for a page."""

    def discover(self) -> list[str]:  # type: ignore[override]
        return ["a"]


class DiscoversPages(Handler[None, None]):
    """Is right."""

    def discover(self, after: str | None, limit: int) -> list[str]:
        return ["a"][:limit]


class DiscoversByFunction(Handler[None, None]):
    """Is right, too."""

    @staticmethod
    def discover(after: str | None, limit: int) -> list[str]:  # type: ignore[override]
        return ["a"][:limit]
