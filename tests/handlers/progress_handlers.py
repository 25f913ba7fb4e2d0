"""A handler that reports progress."""

from pathlib import Path
from typing import Any

from chargehand import Handler, Job, clock


class Stepper(Handler[dict[str, Any], Any]):
    """Says how far it is; waits for a gate after each step, if it is given one."""

    def perform(self, job: Job[dict[str, Any]]) -> Any:
        steps = job.payload.get("steps", 1)
        for step in range(1, steps + 1):
            job.progress(step, steps, stage="net")
            gate = job.payload.get("gate")
            while gate and not Path(f"{gate}-{step}").exists():
                clock.sleep(0.002)
                job.progress(step, steps, stage="net")
        if job.payload.get("bad"):
            raise ValueError("as told")
        return {"steps": steps}
