"""A handler that exits, forks, leaks threads or raises odd errors, as its payload says."""

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

from scripted_handlers import worker_of, write

from chargehand import ChargehandError, ConfigurationError, GiveUp, Handler, Job, UnrecoverableError, clock


def wait_for_ever() -> None:
    while True:
        clock.sleep(60)


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("this has no text")


class Rough(Handler[dict[str, Any], Any]):
    def perform(self, job: Job[dict[str, Any]]) -> Any:
        write(job.payload["ledger"], "start", job.id, os.getpid())
        return getattr(self, job.payload["do"])(job)

    def nothing(self, job: Job[Any]) -> str:
        return "well"

    def leave(self, job: Job[Any]) -> None:
        sys.exit(2)

    def interrupt(self, job: Job[Any]) -> None:
        raise KeyboardInterrupt

    def cancelled(self, job: Job[Any]) -> None:
        import asyncio

        raise asyncio.CancelledError

    def odd_reason(self, job: Job[Any]) -> None:
        raise GiveUp(404)  # type: ignore[arg-type]

    def unreadable_reason(self, job: Job[Any]) -> None:
        raise GiveUp(Unreadable())  # type: ignore[arg-type]

    def unreadable_configuration(self, job: Job[Any]) -> None:
        raise ConfigurationError(Unreadable())

    def deep_folders(self, job: Job[Any]) -> str:
        top = os.getcwd()
        os.chdir(job.scratch)
        for _ in range(3000):
            os.mkdir("in")
            os.chdir("in")
        os.chdir(top)
        return "well"

    def long_message(self, job: Job[Any]) -> None:
        raise ValueError("x" * 20_000_000)

    def unreadable_message(self, job: Job[Any]) -> None:
        raise ValueError("\udc80")

    def thread_then_end(self, job: Job[Any]) -> None:
        threading.Thread(target=wait_for_ever, daemon=False).start()
        raise UnrecoverableError("this machine has no GPU")

    def leave_a_thread(self, job: Job[Any]) -> str:
        threading.Thread(target=self.go_on, args=[job], daemon=True).start()
        return "well"

    def go_on(self, job: Job[Any]) -> None:
        while not os.path.exists(job.payload["gate"]):
            clock.sleep(0.01)
        for call in (lambda: job.enqueue("rough", {}), lambda: job.keep(1), lambda: job.scratch):
            try:
                call()
            except ChargehandError:
                write(job.payload["ledger"], "refused")
        write(job.payload["ledger"], "left")

    def fork_and_terminate(self, job: Job[Any]) -> str:
        import multiprocessing

        processes = [multiprocessing.get_context("fork").Process(target=wait_for_ever) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.terminate()
            process.join()
        return "well"

    def fork_and_return(self, job: Job[Any]) -> str:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        return f"from the {'worker' if pid else 'child'}"

    def wait_for_a_child(self, job: Job[Any]) -> dict[str, int]:
        done = subprocess.run(["sleep", "300"], check=False)
        return {"code": done.returncode}  # a handler that takes its child's death for a result

    def ready_again(self, job: Job[Any]) -> None:
        worker_of(job)._send(b"READY|{}\n")
        wait_for_ever()

    def empty_lines(self, job: Job[Any]) -> None:
        worker_of(job)._send(b"\n" * 200_000)
        wait_for_ever()


class RoughOnALoop(Rough):
    async def perform(self, job: Job[dict[str, Any]]) -> Any:
        return super().perform(job)


class RoughInItsTasks(Handler[dict[str, Any], Any]):
    """Has tasks and callbacks that raise what asyncio raises out of the event loop."""

    async def perform(self, job: Job[dict[str, Any]]) -> Any:
        loop = asyncio.get_running_loop()
        match job.payload["do"]:
            case "leave" | "interrupt" as how:
                await asyncio.gather(self.inner(SystemExit(4) if how == "leave" else KeyboardInterrupt()))
            case "leave later":
                loop.call_soon(sys.exit, 4)
            case "leave as it ends":
                loop.call_soon(sys.exit, 4)
                return job.id
            case "stop the loop":
                loop.stop()
            case _:
                pass
        await asyncio.sleep(0.01)
        return job.id

    async def inner(self, error: BaseException) -> None:
        raise error
