"""Every cause that `doctor` knows, in the order in which it is named: what it means and what mends it.

The manual's table is made from this.
"""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How grave a finding is."""

    ERROR = "error"
    """Something is not being done."""
    WARNING = "warning"
    """Everything may still be done, but not for long, or not as it was meant."""
    NOTE = "note"
    """Nothing is wrong; it explains what is seen."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause that was found: what is the matter, with what, and what mends it."""

    severity: Severity
    cause: str
    about: str
    """A crew, a worker, a queue, a process or a file."""
    text: str
    remedy: str
    """A command, or what to do in words where none can do it."""
    short: str
    """The same in a few words, for the headline."""
    since_ms: int | None = None


CAUSES: dict[str, tuple[str, str]] = {
    "no-store": (
        "No store was found, or there is none where the address says.",
        "name it: `--store`, `CHARGEHAND_URL`",
    ),
    "store-hung": ("Looking at the store did not end in time: its disk hangs.", "mend the disk or the mount"),
    "store-unusable": ("The file cannot be read, is damaged, or is no store.", "what the line says; else a backup"),
    "schema-new": ("A newer Chargehand made the store.", "upgrade the package here"),
    "node-elsewhere": ("The node lives in another container.", "run both in one, or use another store"),
    "node-stopped": ("The node was stopped by a signal (Ctrl+Z, SIGSTOP, a debugger).", "`kill -CONT PID`"),
    "not-allowed": ("The node belongs to another user, and you may not ask it.", "run `doctor` as that user"),
    "node-silent": (
        "A node holds the store but does not answer.",
        "its log; `kill -TERM PID`, and its host starts another",
    ),
    "file-gone": ("The node's file was deleted or replaced under it.", "restart everything that uses it"),
    "disk-full": ("The disk that holds the store is (nearly) full.", "make room"),
    "store-locked": ("A program holds the write lock and does not let go.", "end that program"),
    "store-failing": ("The node cannot write to the store.", "what the line says"),
    "store-slow": ("The node has been waiting for the store.", "look at the disk"),
    "no-node": ("No node runs: nothing is being done.", "`chargehand work APP`, or start your API"),
    "paused": ("A person paused it: all, a crew or a worker.", "`chargehand resume`"),
    "given-up": (
        "Workers crashed past their limits, or said that trying again is no use.",
        "mend it, then `chargehand reset CREW`",
    ),
    "breaker": (
        "All of a crew crashed of one cause; one worker is tried for all.",
        "mend the cause, then `chargehand reset CREW`",
    ),
    "blind": (
        "A crew's `discover` fails, again and again: nobody knows what there is to do.",
        "mend it, restart the crew, or `chargehand wake CREW`",
    ),
    "backoff": ("Crashed workers wait before they are started again.", "`chargehand crashes --crew CREW`"),
    "no-room": (
        "Workers wait for memory that they declared, or need more than there is.",
        "declare less, or `chargehand scale`",
    ),
    "loading": ("All workers of a crew are still loading.", "wait; `chargehand logs CREW` shows what they do"),
    "stopped": ("A person stopped or drained a crew.", "`chargehand start CREW`"),
    "no-workers": ("A crew has no workers.", "`chargehand scale CREW 1`"),
    "no-crew": ("A queue has work, and no crew serves it.", "start the application that has that crew"),
    "node-stopping": ("The node is on its way out.", "start its host again"),
    "network": ("The store is on a network file system, where SQLite loses data.", "move it to a local disk"),
    "two-stores": (
        "Another store is in use than the one looked at: work may wait in the wrong file.",
        "`--store`, `CHARGEHAND_URL`",
    ),
    "unkillable": (
        "A process did not die of SIGKILL; it keeps its job and place.",
        "see to its driver or disk; at worst, reboot",
    ),
    "stuck": ("A worker is silent or stands still, yet uses CPU time.", "wait, or `chargehand restart CREW:INDEX`"),
    "crashing": ("A worker has nearly used up its restarts.", "`chargehand crashes --crew CREW`"),
    "version-skew": ("Node and command line are of different versions.", "restart the node"),
    "schema-old": ("The store is of an older schema than this code.", "start the node with this version"),
    "orphans": ("Processes of an ended node still run.", "the next start ends them; or `kill PID`"),
    "clock": ("Times in the store lie in the future: the clock was set back.", "set the clock right"),
    "unread": ("Something of the store could not be read.", "`chargehand doctor --bundle FILE`, and report it"),
    "unexplained": (
        "Work waits, workers are free, and nothing explains it.",
        "`chargehand doctor --bundle FILE`, and report it",
    ),
    "node-starting": ("The node has just been started.", "wait a moment"),
    "busy": ("All workers are at work; the rest waits its turn.", "`chargehand scale CREW N`, if there is room"),
    "limit": ("As many run as the limit allows.", "raise `limit` or `limit_per_key` of the crew"),
    "future": ("Everything that waits, waits for its time.", "nothing; `chargehand jobs list`"),
    "failed-jobs": ("Jobs have failed for good.", "`chargehand jobs list --state failed`"),
}
"""By their ids, gravest and likeliest first: what it means, and what mends it."""

_ORDER = {cause: number for number, cause in enumerate(CAUSES)}
_GRAVITY = {severity: number for number, severity in enumerate(Severity)}


def in_order(findings: list[Finding]) -> list[Finding]:
    """Gravest first; of the same gravity the likeliest."""
    return sorted(findings, key=lambda found: (_GRAVITY[found.severity], _ORDER[found.cause], found.about))
