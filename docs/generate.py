"""Writes docs/reference.md from the code: states, policies, exit codes, reasons, orders, faults.

In docs/operations.md, it writes what doctor finds.

`python docs/generate.py` writes it, `--check` fails if it is not what the code says.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from chargehand import errors
from chargehand.model import job
from chargehand.model.doctor import causes
from chargehand.model.fleet import death, lifecycle, orders, policy
from chargehand.node import output
from chargehand.settings.known import PREFIX, SETTINGS
from chargehand.store import Retention
from chargehand.testing import faults, faults_loading

PAGE = Path(__file__).with_name("reference.md")
MANUAL = Path(__file__).with_name("operations.md")
BEGIN, END = "<!-- doctor: ", "<!-- end of doctor -->"

STATUS = {
    "starting": "the process was made and loads; it gets no work yet",
    "healthy": "it works, or waits for work",
    "paused": "it lives and beats, and takes nothing: a person paused it",
    "stopping": "it was asked to stop, or somebody sent it a SIGTERM; it takes nothing more",
    "stopped": "nobody is in the place, as was wanted",
    "crashed": "its process died; it comes back by itself",
    "failed": "it was given up: only a person, or a changed handler, brings it back",
}
ORDERS = {
    "start": "start workers that were stopped; one that was given up stays so, and the answer says why",
    "stop": "stop within the grace (ask, SIGTERM to what it started, SIGKILL); stays until `start` or a new node",
    "pause": "take nothing new; a flag in the store, with who, why and until when; survives restarts",
    "resume": "take work again; the answer names those that stay given up",
    "drain": "finish what is in hand, however long it takes, take nothing more, then stop",
    "restart": "replace within the grace, given-up ones too; nothing is charged",
    "reset": "clear the crash history, close the breaker, start what was given up, waits or is stopped",
    "scale": "change a crew's count; those that go finish their jobs; kept until the configured count changes",
}
OUTCOMES = {
    "done": "the handler returned, or settled the job itself",
    "raised": "the handler raised: tried again after 2, 4, 8 … s (at most 10 min) until `max_attempts`",
    "retry": "the handler raised `Retry(after)`: tried again then, until `max_attempts`",
    "gave up": "the handler raised `GiveUp`, or the payload is not of its type: failed at once",
    "timed out": "the job took longer than its `timeout`: its worker was replaced; counts as an attempt",
    "crashed": "its worker died: queued again at once, the second time after a pause, the third time failed as `poison`",
    "interrupted": "a stop, a drain or the node's death took it back: costs nothing",
}
EXIT_CODES = {
    0: "ended in order",
    errors.EXIT_ERROR: "an error",
    errors.EXIT_CONFIGURATION: "configuration error; a worker that ends so is given up at once",
    errors.EXIT_UNRECOVERABLE: "unrecoverable; a worker that ends so is given up at once",
    errors.EXIT_STORE: "the store is unusable (node and command line)",
    errors.EXIT_SET_UP: "the handler's set_up failed; the worker is started again within the limits",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def whole(found: Mapping[str, str], kind: type[Enum]) -> Mapping[str, str]:
    """The texts, if there is one for every member and no other."""
    assert set(found) == {str(member.value) for member in kind}, f"{kind.__name__}: {set(found)}"
    return found


def transitions(found: Mapping[Any, Iterable[Any]], texts: Mapping[str, str], first: str) -> str:
    rows = [
        (f"`{a.value}`", texts[a.value], ", ".join(sorted(f"`{b.value}`" for b in after)) or "–")
        for a, after in found.items()
    ]
    return table((first, "means", "may become"), rows)


def settings(kind: type[Any]) -> str:
    """Fields, defaults, and the sentence that stands below each in the source."""
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    rows: list[tuple[str, str, str]] = []
    for here, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = " ".join(str(following.value.value).split())
            default = "–" if here.value is None else ast.unparse(here.value)
            rows.append((f"`{here.target.id}`", default, text))
    return f"{inspect.getdoc(kind)}\n\n" + table(("setting", "default", "means"), rows)


def outside() -> str:
    """The settings that are no policy's, by their names in the environment and in TOML."""
    rows = [
        (", ".join(f"`{name}`" for name in reversed(each.variables)), f"`{each.name}`", each.allowed)
        for each in SETTINGS
        if len(each.path) == 1
    ]
    crews = [(f"`{PREFIX}CREW_<NAME>_WORKERS`, `…_THREADS`", "`[crews.NAME]` `workers`, `threads`", "a whole number")]
    return table(("environment and .env", "TOML", "allowed"), [*rows, *crews])


JOB_STATES = {
    "queued": "it waits: for a worker, its time, or the end of a pause",
    "running": "a worker has it, or the node holds it for one",
    "done": "it ended well; its result is kept",
    "failed": "it is not tried again by itself; `reason` says why (`raised`, `timed out`, `gave up`, `poison`, …)",
    "cancelled": "a person cancelled it",
}


def page() -> str:
    reasons = [(f"`{reason.value}`", text) for reason, text in death.MEANINGS.items()]
    assert len(reasons) == len(death.Reason)
    parts = [
        "# Reference\n\nWritten by `make docs` from the code; change it there.",
        "## Workers\n\n" + transitions(lifecycle.TRANSITIONS, whole(STATUS, lifecycle.Status), "status"),
        (
            "Beside the status stand flags: `unresponsive` (silent, but it uses CPU time: C code holds the interpreter) and "
            "`stalled` (its working thread stands still in a job without a timeout, but CPU time is used). A flagged worker is "
            "never shown as plainly healthy, and never killed for it."
        ),
        "## Why a worker is not there\n\n" + table(("reason", "means"), reasons),
        "Exit code, signal and reason are separate facts in a crash report.",
        "## Exit codes\n\n" + table(("code", "means"), EXIT_CODES.items()),
        "## Orders\n\n"
        + table(("order", "does"), [(f"`{v}`", t) for v, t in whole(ORDERS, orders.Verb).items()])
        + "\n\nEach on all workers, a crew by its name, or one worker as `crew:index`; each answers at once with what will "
        "happen; each can be given twice.",
        "## Jobs\n\n" + transitions(job.TRANSITIONS, whole(JOB_STATES, job.State), "state"),
        "How an attempt ends:\n\n" + table(("outcome", "means"), OUTCOMES.items()),
        "## Settings\n\nCode, then `chargehand.toml`, then `.env`, then the environment: the later wins.\n\n"
        + outside(),
        (
            "Every number of the four policies below is a setting, too: `RestartPolicy.window` is `CHARGEHAND_RESTART_WINDOW`, and in TOML `window` "
            "under `[restart]`; the others are `LIVENESS`, `STARTS` and `RETENTION`. `CHARGEHAND_GRACE` is short for "
            "`CHARGEHAND_LIVENESS_GRACE`."
        ),
        "## Restarting: `RestartPolicy`\n\n" + settings(policy.RestartPolicy),
        (
            "A worker that died is started again after `first_pause` × 2ⁿ seconds (at most `longest_pause`, plus up to a tenth by "
            "chance), n being its crashes in a row. It is given up when more than `rapid_limit` charged crashes fall into `window`, "
            "or more than `lifetime_limit` in all. `healthy_after` seconds of running, from ready, forgive the row and the window; "
            "`forgive_after` the rest. A crash without a job in hand is charged to the worker; one with a job is charged to the job, "
            "and to the worker only if its crew got nothing out of the way since its previous crash. Stops, drains, recycling, "
            "scaling and job timeouts are charged to nobody. When all of a crew (two or more) crash of the same cause within "
            "`breaker_window`, without a job in hand, one of them is tried further and the others wait until that one has run well for "
            "`healthy_after`, or until a reset; if it is given up, they are."
        ),
        "## Liveness: `LivenessPolicy`\n\n" + settings(policy.LivenessPolicy),
        "## Starting: `StartPolicy`\n\n" + settings(policy.StartPolicy),
        "## Keeping: `Retention`\n\n" + settings(Retention),
        (
            f"## Logs\n\nWhat a worker prints and logs reaches the node's log line by line, with its component and job. The last "
            f"{output.KEPT} lines of a dead one are in its crash report; lines are cut at {output.LONGEST_LINE} bytes."
        ),
        "## Faults for tests\n\nThe handler `chargehand.testing.faults:Faulty` does on request what workers do by accident: "
        '`crew.enqueue({"fault": "segfault"})`.\n\n'
        + table(("fault", "does"), [(f"`{n}`", t) for n, t in faults.FAULTS.items()])
        + "\n\nWhile loading, by the crew's environment variable `CHARGEHAND_FAULT_SET_UP`:\n\n"
        + table(("fault", "does"), [(f"`{n}`", t) for n, t in faults_loading.SET_UP_FAULTS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def manual() -> str:
    """The manual with the present findings in their place."""
    before, begin, rest = MANUAL.read_text().partition(BEGIN)
    comment, _, after = rest.partition("\n")
    rows = [(f"`{cause}`", meaning, remedy) for cause, (meaning, remedy) in causes.CAUSES.items()]
    found = table(("finding", "means", "what mends it"), rows)
    return f"{before}{begin}{comment}\n\n{found}\n\n{END}{after.partition(END)[2]}"


def main() -> int:
    pages = {PAGE: page(), MANUAL: manual()}
    if "--check" in sys.argv:
        old = [path.name for path, text in pages.items() if not path.exists() or path.read_text() != text]
        sys.stderr.writelines(f"{name} is not what the code says: make docs\n" for name in old)
        return 1 if old else 0
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
