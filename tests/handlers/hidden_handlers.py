"""Handlers whose payloads, results and log records have a field that no reader may see."""

import logging
from typing import Any

from chargehand import Handler, Job, UnrecoverableError, WorkerBroken


class Account(Handler[dict[str, Any], dict[str, Any]]):
    """Logs and returns the token that it is given."""

    def perform(self, job: Job[dict[str, Any]]) -> dict[str, Any]:
        token, meta = job.payload["token"], job.meta
        if job.payload.get("ends") == "broken":
            raise WorkerBroken(f"the token {token} broke it")
        if job.payload.get("ends") == "unrecoverable":
            raise UnrecoverableError(f"the token {token} is not for this machine")
        if job.payload.get("fails"):
            logging.getLogger("account").warning("refused %s", token, extra={"why": f"{token} is old"})
            raise ValueError(f"the token {token} is refused")
        logging.getLogger("account").info("signed in", extra={"token": token, "request": {"Token": token}, "user": 7})
        return {"token": token, "used": [{"TOKEN": token}], "meta": meta, "user": 7}
