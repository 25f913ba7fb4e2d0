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
