"""Generates docs/reference.md, docs/cli.md, docs/errors.md, and the table of doctor's findings in docs/operations.md, from the code.

`python docs/generate.py` writes the files. `--check` exits with status 1 if a file differs from the generated text.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from chargehand import codec, errors
from chargehand.cli.main import app as command_line
from chargehand.model import job
from chargehand.model.doctor import causes
from chargehand.model.error_codes import CODES
from chargehand.model.fleet import death, lifecycle, orders, policy, stacks
from chargehand.model.records import Retention
from chargehand.model.search import DiscoveryPolicy
from chargehand.node import output
from chargehand.settings.http import HttpPolicy
from chargehand.settings.known import PREFIX, SETTINGS
from chargehand.testing import faults, faults_loading

PAGE = Path(__file__).with_name("reference.md")
MANUAL = Path(__file__).with_name("operations.md")
COMMANDS = Path(__file__).with_name("cli.md")
ERRORS = Path(__file__).with_name("errors.md")
BEGIN, END = "<!-- doctor: ", "<!-- end of doctor -->"

STATUS = {
    "starting": "the process has been started and is loading; it receives no jobs yet",
    "healthy": "the worker runs a job or waits for one",
    "paused": "an operator paused the worker: it runs and sends heartbeats, but takes no jobs",
    "asleep": "the process exited because it was idle or paused for `idle_exit`; the next job starts another",
    "stopping": "the worker was asked to stop, or received SIGTERM; it takes no more jobs",
    "stopped": "no process runs, as requested",
    "crashed": "the process crashed; it is restarted automatically",
    "failed": "the worker was given up; only an operator or changed handler code starts it again",
}
ORDERS = {
    "start": "starts stopped workers; a worker that was given up stays given up, and the answer states the reason",
    "stop": "stops workers within the grace period (stop request, SIGTERM to child processes, SIGKILL); lasts until `start` or a new node",
    "pause": "takes no new jobs; stored with user, reason and end time; survives restarts",
    "resume": "takes jobs again; the answer names workers that remain given up",
    "drain": "finishes running jobs without a time limit, takes no new ones, then stops",
    "restart": "replaces workers within the grace period, including those that were given up; counts no attempt and no crash",
    "reset": "clears the crash history, closes the circuit breaker, and starts workers that were given up, wait for a restart, or are stopped",
    "scale": "changes the number of workers of a crew; surplus workers finish their jobs; lasts until the configured number changes",
}
OUTCOMES = {
    "done": "the handler returned, or completed the job with `job.settle`",
    "raised": "the handler raised an exception: retried after 2, 4, 8 … s (at most 10 min) until `max_attempts`",
    "retry": "the handler raised `Retry(after)`: retried after that time, until `max_attempts`",
    "gave up": "the handler raised `GiveUp`, or the payload does not match its type: the job fails immediately",
    "timed out": "the job exceeded its `timeout`: its worker is replaced, and the attempt counts",
    "crashed": "its worker crashed: queued again immediately, after the second crash with a delay; after the third crash the job fails as `poison`",
    "interrupted": "a stop, a drain or the exit of the node returned it to the queue; no attempt counts",
}
STACKS = {
    "dumped": "the answer has the stacks",
    "no_process": "the worker has no process: it is stopped, asleep, crashed or given up",
    "starting": "the process has just been started",
    "suspended": "the process is suspended by SIGSTOP or a debugger",
    "exited": "the process has exited, or is about to; `chargehand crashes` has a report if it crashed or was killed",
    "busy": "the worker did not answer, and a signal could crash it because several threads use the CPU: repeat the request",
    "no_handler": "the worker did not answer, and its code has replaced the handler of SIGUSR1 or closed its file",
    "not_delivered": "the process did not handle SIGUSR1 in time: it waits in the kernel, blocks the signal, or gets no CPU time",
}
EXIT_CODES = {
    0: "success, or graceful shutdown",
    errors.EXIT_ERROR: "error",
    errors.EXIT_CONFIGURATION: "configuration error; a worker with this exit code is given up immediately",
    errors.EXIT_UNRECOVERABLE: "unrecoverable error; a worker with this exit code is given up immediately",
    errors.EXIT_STORE: "unusable store (node and command line)",
    errors.EXIT_SET_UP: "`set_up` of the handler failed; the worker is restarted within the restart limits",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def whole(found: Mapping[str, str], kind: type[Enum]) -> Mapping[str, str]:
    """Returns the texts, after checking that they cover exactly the members of the enum."""
    assert set(found) == {str(member.value) for member in kind}, f"{kind.__name__}: {set(found)}"
    return found


def transitions(found: Mapping[Any, Iterable[Any]], texts: Mapping[str, str], first: str) -> str:
    rows = [
        (f"`{a.value}`", texts[a.value], ", ".join(sorted(f"`{b.value}`" for b in after)) or "–")
        for a, after in found.items()
    ]
    return table((first, "meaning", "may become"), rows)


def settings(kind: type[Any]) -> str:
    """Returns a table of the fields of a class, with their defaults and the docstrings below them in the source."""
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
    return f"{inspect.getdoc(kind)}\n\n" + table(("setting", "default", "meaning"), rows)


def outside() -> str:
    """Returns a table of the settings outside the policies, with their names in the environment and in TOML."""
    rows = [
        (", ".join(f"`{name}`" for name in reversed(each.variables)), f"`{each.name}`", each.allowed)
        for each in SETTINGS
        if len(each.path) == 1
    ]
    crews = [(f"`{PREFIX}CREW_<NAME>_WORKERS`, `…_THREADS`", "`[crews.NAME]` `workers`, `threads`", "a whole number")]
    return table(("environment and .env", "TOML", "allowed values"), [*rows, *crews])


JOB_STATES = {
    "queued": "the job waits for a worker, its scheduled time, or the end of a pause",
    "running": "a worker runs the job, or the node holds it for a worker",
    "done": "the job succeeded; its result is stored",
    "failed": "the job is not retried automatically; `reason` states why (`raised`, `timed out`, `gave up`, `poison`, …)",
    "cancelled": "the job was cancelled",
}


def limits() -> list[tuple[str, str, str]]:
    return [
        ("size as JSON", f"{job.PAYLOAD_LIMIT:,} bytes", "store the data elsewhere and pass a reference to it"),
        (
            "arrays and objects within each other",
            f"{codec.DEPTH_LIMIT}",
            "flatten the value, or pass the inner part as a string of JSON",
        ),
        ("digits in a row in a number", f"{codec.DIGITS_LIMIT}", "pass the number as a string"),
        ("range of a number with a fraction or an exponent", "finite", "pass null or a string for infinity and NaN"),
    ]


def page() -> str:
    reasons = [(f"`{reason.value}`", text) for reason, text in death.MEANINGS.items()]
    assert len(reasons) == len(death.Reason)
    parts = [
        "# Reference\n\nGenerated from the code by `make docs`. Change the code, not this file.",
        "## Workers\n\n" + transitions(lifecycle.TRANSITIONS, whole(STATUS, lifecycle.Status), "status"),
        (
            "A worker can also have flags: `unresponsive` (it sends no heartbeats but uses CPU time, because C code holds the "
            "GIL) and `stalled` (its main thread makes no progress in a job without a timeout, but the process uses CPU time; "
            "with `concurrency`: a job blocks the event loop, so that the others wait). "
            "A worker with a flag is not shown as healthy, and is not killed because of the flag."
        ),
        "## Reasons\n\nWhy a worker does not run:\n\n" + table(("reason", "meaning"), reasons),
        "Exit code, signal and reason are separate fields of a crash report.",
        "## Exit codes\n\n" + table(("code", "meaning"), EXIT_CODES.items()),
        "## Control operations\n\n"
        + table(("operation", "effect"), [(f"`{v}`", t) for v, t in whole(ORDERS, orders.Verb).items()])
        + "\n\nAn operation applies to all workers, to a crew by its name, or to one worker as `crew:index`. It is answered "
        "immediately with its effect, and it is idempotent.",
        "## Stacks\n\nThe codes of `chargehand stack`. If a process was asked, the answer also has the kernel's view of each "
        "of its threads.\n\n"
        + table(("code", "meaning"), [(f"`{code}`", text) for code, text in whole(STACKS, stacks.StackCode).items()]),
        "## Jobs\n\n" + transitions(job.TRANSITIONS, whole(JOB_STATES, job.State), "state"),
        "Outcomes of an attempt:\n\n" + table(("outcome", "meaning"), OUTCOMES.items()),
        "Limits of payloads and results. They apply to everything that comes in, from Python, HTTP, the command line and handlers, "
        "on every version of Python. A payload beyond a limit is refused with `PayloadError` (HTTP: status 422); a result beyond a limit "
        "fails its job.\n\n" + table(("limit", "value", "instead"), limits()),
        "## Settings\n\nSources in order of increasing precedence: arguments in code, `chargehand.toml`, `.env`, environment variables. "
        "Each file is read beside the module that creates the `Chargehand` and in the current folder, which takes precedence.\n\n"
        + outside(),
        (
            "Every field of the policies below is also a setting: `RestartPolicy.window` is `CHARGEHAND_RESTART_WINDOW`, and in TOML `window` "
            "under `[restart]`. The prefixes of the others are `LIVENESS`, `STARTS`, `RETENTION`, `JOBS`, `DISCOVERY` and `HTTP`. `CHARGEHAND_GRACE` is an alias of "
            "`CHARGEHAND_LIVENESS_GRACE`."
        ),
        "## Restarts: `RestartPolicy`\n\n" + settings(policy.RestartPolicy),
        (
            "**Backoff.** A crashed worker is restarted after `first_pause` seconds after its first crash, and twice as long after each further crash in a row. "
            "A random addition of up to a tenth spreads restarts; the delay is never above `longest_pause`.\n\n"
            "**Limits.** A worker is given up when more than `rapid_limit` of its charged crashes fall into `window`, or more than "
            "`lifetime_limit` in total. When a worker has been ready for `healthy_after` seconds, its consecutive crashes and those in the "
            "window are cleared; after `forgive_after` seconds the total is cleared too.\n\n"
            "**Charging.** A crash without a running job is charged to the worker. A crash with a running job is charged to the job. It is "
            "also charged to the worker if its crew has completed or quarantined no job since the previous crash of that worker. Stops, "
            "drains, recycling, scaling and job timeouts are not charged.\n\n"
            "**Circuit breaker.** When all workers of a crew (two or more) crash for the same reason within `breaker_window`, without a "
            "running job, one of them is restarted as a probe and the others wait. They start when the probe has run for `healthy_after` "
            "seconds, or after a reset. If the probe is given up, all of them are."
        ),
        "## Liveness: `LivenessPolicy`\n\n" + settings(policy.LivenessPolicy),
        "## Starts: `StartPolicy`\n\n" + settings(policy.StartPolicy),
        "## Retention: `Retention`\n\n" + settings(Retention),
        "## Attempts: `JobPolicy`\n\n" + settings(job.JobPolicy),
        "## Discovery: `DiscoveryPolicy`\n\n" + settings(DiscoveryPolicy),
        "## HTTP: `HttpPolicy`\n\n" + settings(HttpPolicy),
        (
            f"## Logs\n\nThe node logs each line that a worker prints or logs, with component and job. A crash report contains the "
            f"last {output.KEPT} lines of the worker. Lines are cut at {output.LONGEST_LINE} bytes."
        ),
        "## Faults for tests\n\nThe handler `chargehand.testing.faults:Faulty` simulates faults of workers on request: "
        '`crew.enqueue({"fault": "segfault"})`.\n\n'
        + table(("fault", "effect"), [(f"`{n}`", t) for n, t in faults.FAULTS.items()])
        + "\n\nFaults during start, selected with the environment variable `CHARGEHAND_FAULT_SET_UP` of the crew:\n\n"
        + table(("fault", "effect"), [(f"`{n}`", t) for n, t in faults_loading.SET_UP_FAULTS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def error_page() -> str:
    """Returns docs/errors.md: a section for every code."""
    kinds: dict[str, list[str]] = {}
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.ChargehandError):
            kinds.setdefault(cls.code, []).append(f"`{name}`")
    parts = [
        "# Errors\n\nGenerated from the code by `make docs`. Change the code, not this file.",
        (
            "Every error has a code. The command line prints it in brackets at the end of its message (`… [store-locked]`), the HTTP API as the "
            "end of `type` (`urn:chargehand:problem:store-unusable`), `/readyz` and `doctor --json` as `code` and `cause`, and every exception "
            "has it as `code`. Programs should compare codes and classes, never texts. Reasons of failed jobs and of workers that do not run are in the "
            "[reference](reference.md#reasons); exit codes [there](reference.md#exit-codes), too."
        ),
        "## Errors of calls, commands and requests",
    ]
    parts += [error_section(code, each.meaning, each.remedy, kinds) for code, each in sorted(CODES.items())]
    parts.append(
        "## Causes that doctor finds\n\nThose that concern the store are also the codes of `StoreError` and of `/readyz`."
    )
    parts += [error_section(code, *found, kinds) for code, found in sorted(causes.CAUSES.items())]
    return "\n\n".join(parts) + "\n"


def error_section(code: str, meaning: str, remedy: str, kinds: Mapping[str, Sequence[str]]) -> str:
    raised = f"\n\nIn Python: {', '.join(kinds[code])}." if code in kinds else ""
    return f"### `{code}`\n\n{prose(meaning)}{raised}\n\n**To do:** {prose(remedy)}."


def manual() -> str:
    """Returns docs/operations.md with the current table of findings."""
    before, begin, rest = MANUAL.read_text().partition(BEGIN)
    comment, _, after = rest.partition("\n")
    rows = [(f"`{cause}`", meaning, remedy) for cause, (meaning, remedy) in causes.CAUSES.items()]
    found = table(("finding", "meaning", "remedy"), rows)
    return f"{before}{begin}{comment}\n\n{found}\n\n{END}{after.partition(END)[2]}"


def commands() -> str:
    """Returns docs/cli.md: every command with its arguments and options."""
    root = get_command(command_line)
    assert isinstance(root, TyperGroup)
    parts = [
        "# Command line\n\nGenerated from the code by `make docs`. Change the code, not this file.",
        "Options of `chargehand` itself stand before the command: `chargehand --url http://studio:8356 status`.\n\n"
        + options(root),
        "Exit codes are in the [reference](reference.md#exit-codes).",
    ]
    for path, command in every_command(root, ()):
        context = command.make_context(path[-1], [], resilient_parsing=True)
        usage = " ".join(["chargehand", *path, *command.collect_usage_pieces(context)])
        parts.append(f"## chargehand {' '.join(path)}\n\n`{usage}`\n\n{prose(command.help or '')}")
        if rows := options(command):
            parts.append(rows)
    return "\n\n".join(parts) + "\n"


def every_command(
    group: TyperGroup, path: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], TyperCommand | TyperGroup]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield (*path, name), command
            yield from every_command(command, (*path, name))
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield (*path, name), command


def options(command: TyperCommand | TyperGroup) -> str:
    context = command.make_context("chargehand", [], resilient_parsing=True)
    found = [each.get_help_record(context) for each in command.params]
    rows = [(f"`{record[0]}`", prose(record[1])) for record in found if record]
    return table(("argument or option", "meaning"), rows) if rows else ""


def prose(text: str) -> str:
    """Returns a help text for Markdown: line breaks within a paragraph are spaces, and `<` and `*` stand for themselves."""
    paragraphs = inspect.cleandoc(text.replace("\b", "")).split("\n\n")
    joined = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    return joined.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def main() -> int:
    pages = {PAGE: page(), MANUAL: manual(), COMMANDS: commands(), ERRORS: error_page()}
    if "--check" in sys.argv:
        old = [path.name for path, text in pages.items() if not path.exists() or path.read_text() != text]
        sys.stderr.writelines(f"{name} is out of date: run make docs\n" for name in old)
        return 1 if old else 0
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
