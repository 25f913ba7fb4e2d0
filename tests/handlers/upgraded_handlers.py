"""The handlers of `upgraded_app`. Their results name the package that they ran with."""

from pathlib import Path
from typing import Any

from upgraded_app import Said, Text

import chargehand
from chargehand import Handler, Job, clock

PACKAGE = str(Path(chargehand.__file__).resolve().parent)


class Say(Handler[Text, Said]):
    """Returns the text, once the gate exists."""

    def perform(self, job: Job[Text]) -> Said:
        gate = job.payload.gate
        while gate is not None and not Path(gate).exists():
            if job.cancelled:
                break
            clock.sleep(0.01)
        job.progress(1, 1)
        return Said(job.payload.text, PACKAGE)


class Keep(Handler[str, str]):
    """Keeps the payload in a table of the application, in the transaction that ends the job."""

    def perform(self, job: Job[str]) -> Any:
        with job.settle(PACKAGE) as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS kept (text TEXT)")
            tx.execute("INSERT INTO kept VALUES (?)", (job.payload,))


class Fail(Handler[Any, None]):
    """Fails, unless the payload says otherwise."""

    def perform(self, job: Job[Any]) -> None:
        if job.payload != "well":
            raise ValueError(f"refused: {job.payload}")
