"""Handlers that do what their payload says. Workers import this module hundreds of times: keep its imports few."""

import os
import sys
from typing import Any

from chargehand import GiveUp, Handler, Job, Retry, clock


def write(path: str, *words: Any) -> None:
    """One line, whole, even if the process is killed right after."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, (" ".join(str(word) for word in words) + "\n").encode())
    os.close(descriptor)


def worker_of(job: Job[Any]) -> Any:
    """Returns the worker that performs a job, to write into its sockets."""
    context: Any = job._context  # pyright: ignore[reportPrivateUsage]
    return context.worker


class Doer(Handler[dict[str, Any], Any]):
    """Does what the payload says, and keeps a ledger of its own: `start ID PID` and `end ID PID`."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        payload = job.payload
        write(payload["ledger"], "start", job.id, os.getpid())
        for kind in payload.get("children", ()):
            self.start_child(kind, payload["ledger"])
        if "gate" in payload:
            while not os.path.exists(payload["gate"]):
                clock.sleep(0.002)
        followed = [job.enqueue(crew, following, **options) for crew, following, options in payload.get("follow", ())]
        match payload.get("end"):
            case "raise":
                raise RuntimeError(payload.get("text", "as told"))
            case "retry":
                raise Retry(after=0.01)
            case "give up":
                raise GiveUp("as told")
            case "exit":
                os._exit(payload["code"])
            case _:
                write(payload["ledger"], "end", job.id, os.getpid())
                return payload.get("result", followed or job.attempt)

    def start_child(self, kind: str, ledger: str) -> None:
        """Something that would live on by itself for minutes."""
        import subprocess

        match kind:
            case "sleep":
                pid = subprocess.Popen(["sleep", "300"]).pid
            case "session":  # in a session of its own
                pid = subprocess.Popen(["sleep", "300"], start_new_session=True).pid
            case "stranger":  # in a session of its own, with nothing of ours in its environment
                pid = subprocess.Popen(["sleep", "300"], start_new_session=True, env={}).pid
            case "daemon":  # its parent is gone at once, as a daemon's is
                text = "import subprocess as s; print(s.Popen(['sleep', '300'], stdout=s.DEVNULL).pid)"
                done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, check=True, text=True)
                pid = int(done.stdout)
            case _:  # a forked copy of this very process
                pid = os.fork()
                if not pid:
                    while True:
                        clock.sleep(60)
        write(ledger, "child", kind, pid)


class Settler(Handler[dict[str, Any], Any]):
    """Writes a row of the application's own and settles its job in one transaction."""

    mark = "?"

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        payload = job.payload
        write(payload["ledger"], "start", job.id, os.getpid())
        if "gate" in payload:
            while not os.path.exists(payload["gate"]):
                clock.sleep(0.002)
        with job.settle({"by": os.getpid()}) as tx:
            values = f"VALUES ({self.mark}, {self.mark})"
            tx.execute(f"INSERT INTO song (title, worker) {values}", (payload["title"], os.getpid()))
            if payload.get("spoil"):
                raise RuntimeError("spoilt inside the transaction")
        if payload.get("exit") and job.attempt + job.crashes == 1:
            os._exit(9)
        write(payload["ledger"], "end", job.id, os.getpid())


class PostgresSettler(Settler):
    """Settles its job in a transaction of PostgreSQL."""

    mark = "%s"


class Heavy(Handler[Any, Any]):
    """Its module is light; what it loads is not."""

    def set_up(self) -> None:
        import heavy_model  # pyright: ignore[reportMissingImports]

        self.model = heavy_model

    def perform(self, job: Job[Any]) -> Any:
        return os.getpid()


class NoSetUp(Handler[Any, Any]):
    def set_up(self) -> None:
        raise RuntimeError("the model file is missing")

    def perform(self, job: Job[Any]) -> Any:
        return None
