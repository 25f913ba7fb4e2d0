"""Asks NVIDIA's tool `nvidia-smi` for the GPUs of this machine and for the memory that processes use on them."""

import subprocess
from contextlib import suppress

from chargehand import clock
from chargehand.model.fleet.cards import VISIBLE, CardUse, Reading, parse_cards, parse_uses, visible
from chargehand.processes import proc

LIMIT = 20.0
"""Seconds that the tool may take: without its persistence mode, the driver initialises each GPU first."""
KILLED = 1.0
"""Seconds for which a killed tool is waited for."""
CARDS = "--query-gpu=index,uuid,name,memory.total,memory.free,utilization.gpu"
USES = "--query-compute-apps=pid,gpu_uuid,used_memory"
FORMAT = "--format=csv,noheader,nounits"


class ToolError(Exception):
    """The tool is missing, failed, or did not answer in time."""


class Tool:
    """Runs the tool, in one thread at a time; `stop` may be called in another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def read(self, allowed: str | None, limit: float = LIMIT) -> Reading:
        """Returns the GPUs that `allowed`, the value of CUDA_VISIBLE_DEVICES, permits; or why there are none."""
        at = clock.monotonic()
        try:
            every = parse_cards(self._run(CARDS, limit))
        except (ToolError, ValueError) as error:
            return Reading(at=at, why=f"{self._name}: {error}")
        cards = visible(every, allowed)
        if not cards:
            named = f"{VISIBLE} is {allowed!r}, which names no GPU of this machine"
            return Reading(at=at, why=named if every else f"{self._name} lists none")
        try:
            uses = [(proc.stat(pid), uuid, memory) for pid, uuid, memory in parse_uses(self._run(USES, limit))]
        except (ToolError, ValueError):
            uses = []  # some drivers do not support it: the figures of the GPUs remain
        own = tuple(CardUse(seen.session, uuid, memory) for seen, uuid, memory in uses if seen is not None)
        return Reading(at=at, cards=cards, uses=own)

    def stop(self) -> None:
        """Kills the tool if it is running, and whenever it is started again."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()

    def _run(self, query: str, limit: float) -> str:
        try:
            self._process = process = subprocess.Popen(
                [self._name, query, FORMAT],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise ToolError("not found" if isinstance(error, FileNotFoundError) else str(error.strerror)) from None
        if self._stopped:
            process.kill()
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            with suppress(subprocess.TimeoutExpired):  # a driver that hangs may keep it for ever
                process.wait(KILLED)
            raise ToolError(f"no answer within {limit:g} s") from None
        if process.returncode:
            said = f"{output}\n{errors}".strip().splitlines()
            raise ToolError(f"exit status {process.returncode}" + (f": {said[-1][:200]}" if said else ""))
        return output
