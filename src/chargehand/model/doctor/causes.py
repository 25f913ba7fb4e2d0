"""The causes that `doctor` can report, in order of precedence, each with its meaning and its remedy.

The table in the documentation is generated from this module.
"""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Some jobs are not performed."""
    WARNING = "warning"
    """Jobs are performed, but a problem is likely, or something is not as configured."""
    NOTE = "note"
    """Nothing is wrong; the finding explains what is observed."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that was found: a description, what it concerns, and its remedy."""

    severity: Severity
    cause: str
    about: str
    """A crew, a worker, a queue, a process or a file."""
    text: str
    remedy: str
    """A command, or instructions if no command can do it."""
    short: str
    """A short description for the headline."""
    since_ms: int | None = None


CAUSES: dict[str, tuple[str, str]] = {
    "no-store": (
        "No store was found, or none exists at the configured path.",
        "set `--store` or `CHARGEHAND_URL`",
    ),
    "store-hung": (
        "Reading the store timed out: its disk or its server hangs.",
        "repair the disk or the mount; check the server and the network",
    ),
    "store-unusable": (
        "The store cannot be read or written, is damaged, or is not a store.",
        "see the finding's text; or restore a backup",
    ),
    "store-damaged": (
        "The store is empty, truncated or damaged, or its write-ahead log is.",
        "restore a backup; nothing is repaired or overwritten",
    ),
    "bad-address": ("The URL of the store is malformed.", "correct `CHARGEHAND_URL` or `--store`"),
    "no-driver": ("The driver for PostgreSQL is not installed.", "`pip install 'chargehand[postgres]'`"),
    "server-gone": (
        "No server answers at the address of the store, or the connection was lost.",
        "check host and port in the URL, the network, and that the server runs",
    ),
    "server-starting": ("The server of the store is starting up or shutting down.", "wait a moment, or start it"),
    "bad-login": (
        "The server does not accept the user, the host or the password.",
        "correct the URL, `PGPASSWORD` or `~/.pgpass`; check `pg_hba.conf` on the server",
    ),
    "no-database": ("The server has no database of that name.", "`createdb`, or name another in the URL"),
    "no-connections": (
        "The server has no or hardly any connection left, or the database or the user has reached its limit.",
        "raise `max_connections` or the limit, run fewer processes, or use a pooler",
    ),
    "server-refuses": (
        "The server of the store refuses the connection.",
        "check user, password and database in the URL, and `pg_hba.conf` and `max_connections` on the server",
    ),
    "server-old": ("The server is older than the oldest supported version.", "upgrade the server"),
    "server-read-only": (
        "The server is a standby, or default_transaction_read_only is set: nothing can be written.",
        "name the primary, or several hosts, in the URL",
    ),
    "former-primary": (
        "The server of the store is a former primary: what was committed since its replacement is missing.",
        "stop it, or make it a standby; if it is the right one, restart the nodes",
    ),
    "no-rights": ("The user lacks rights on the schema or the tables.", "grant them, see the finding's text"),
    "schema-new": ("A newer version of Chargehand created the store.", "upgrade this installation"),
    "node-elsewhere": ("The node runs in another container.", "run both in one container, or use separate stores"),
    "node-stopped": ("The node was stopped by a signal (Ctrl+Z, SIGSTOP, a debugger).", "`kill -CONT PID`"),
    "not-allowed": ("The node belongs to another user and refuses the connection.", "run `doctor` as that user"),
    "node-silent": (
        "A node serves the store but does not answer.",
        "check its log; after `kill -TERM PID` its host starts another node",
    ),
    "socket-gone": (
        "The node's control socket was deleted: jobs are performed, but commands cannot reach the node.",
        "wait until the node creates it again; or `kill -TERM PID`, and its host starts another node",
    ),
    "file-gone": (
        "The store's file, or SQLite's log beside it, was deleted or replaced while the node uses it.",
        "restart all processes that use it",
    ),
    "disk-full": ("The disk of the store is full or nearly full.", "free disk space"),
    "store-locked": (
        "Another process holds the store's write lock, or SQLite's own, or has locked a table on the server.",
        "end its transaction, or `kill -TERM PID`",
    ),
    "store-failing": ("The node cannot write to the store.", "see the finding's text"),
    "store-slow": ("The store responds slowly to the node.", "check the disk"),
    "node-dies": (
        "The node has exited, and its host waits before it starts another.",
        "read the host's log; `chargehand crashes`",
    ),
    "old-snapshot": (
        "An old transaction or replication slot keeps the server from removing deleted rows.",
        "end it; `SELECT pg_terminate_backend(PID)`",
    ),
    "dead-rows": (
        "The table of queued and running jobs has many deleted rows that no vacuum has removed.",
        "end old transactions; `VACUUM chargehand_live`; check the settings of autovacuum",
    ),
    "autovacuum-off": ("Autovacuum is off, for the server or for a table.", "switch it on"),
    "not-durable": (
        "fsync, full_page_writes or synchronous_commit is off: a crash of the server may lose acknowledged jobs.",
        "switch it on",
    ),
    "node-gone": (
        "A node that shares the store disappeared without having been stopped: its machine or its process has ended.",
        "start it again; its jobs go to other nodes",
    ),
    "clock-skew": ("The clocks of this machine and of the server differ.", "synchronise both (NTP)"),
    "driver-slow": ("psycopg runs without its C extension.", "`pip install 'psycopg[binary]'`"),
    "no-node": ("No node runs: no jobs are performed.", "`chargehand work APP`, or start your API"),
    "paused": ("An operator paused everything, a crew or a worker.", "`chargehand resume`"),
    "given-up": (
        "Workers exceeded their restart limits, or reported that a restart cannot help.",
        "fix the cause, then `chargehand reset CREW`",
    ),
    "breaker": (
        "All workers of a crew crashed of one cause; only one of them is restarted.",
        "fix the cause, then `chargehand reset CREW`",
    ),
    "blind": (
        "A crew's `discover` fails repeatedly, so no new work is found.",
        "fix it, then `chargehand restart CREW` or `chargehand wake CREW`",
    ),
    "failing": (
        "No job of a crew was done since a worker was replaced: jobs fail in a fresh process, too.",
        "fix the cause, then `chargehand jobs retry --all`",
    ),
    "backoff": ("Crashed workers wait to be restarted.", "`chargehand crashes --crew CREW`"),
    "no-room": (
        "Workers wait for the memory or the GPUs that their crew declares, or declare more than there is.",
        "declare less memory or fewer GPUs, or `chargehand scale`",
    ),
    "loading": ("All workers of a crew are still loading.", "wait; `chargehand logs CREW` shows their output"),
    "stopped": ("An operator stopped or drained a crew.", "`chargehand start CREW`"),
    "no-workers": ("A crew has no workers.", "`chargehand scale CREW 1`"),
    "no-crew": (
        "A queue has waiting jobs, but no node has a crew for it. On SQLite, a second application waits.",
        "declare all crews in one application, or give each application its own store",
    ),
    "awaits-held": (
        "All jobs of a queue wait for another job, which is paused, given up, failed, or served by no crew.",
        "see the finding's text: `chargehand resume CREW`, `chargehand reset CREW` or `chargehand jobs retry ID`",
    ),
    "flow-held": (
        "A flow has not ended and has no job that can run: it waits for a job that is paused, given up or unserved.",
        "see the finding's text; `chargehand flows show ID`",
    ),
    "node-stopping": ("The node is stopping.", "restart its host"),
    "network": ("The store is on a network file system, where SQLite loses data.", "move it to a local disk"),
    "folder-shared": (
        "The group of the store's folder may write to it: each of its members can replace the store.",
        "`chmod g-w` the folder, unless every member is trusted",
    ),
    "two-stores": (
        "Another store is in use than the one examined: jobs may be enqueued in the wrong one.",
        "set `--store` or `CHARGEHAND_URL`",
    ),
    "unkillable": (
        "A process did not exit after SIGKILL; its job and its worker are blocked.",
        "check the driver or disk that it waits for; if necessary, reboot",
    ),
    "stuck": (
        "A worker sends no heartbeats or makes no progress, but uses CPU time.",
        "wait, or `chargehand restart CREW:INDEX`",
    ),
    "crashing": ("A worker has almost reached its restart limit.", "`chargehand crashes --crew CREW`"),
    "poison": (
        "A job has crashed several workers. After the third crash it is quarantined: it fails.",
        "`chargehand crashes --job ID`; after the fix, `chargehand jobs retry ID`",
    ),
    "replaced": (
        "A worker was replaced: its process was broken, or failed jobs that others can do.",
        "`chargehand crashes --worker CREW:INDEX`",
    ),
    "version-skew": ("The node and the command line have different versions.", "restart the node"),
    "schema-old": (
        "The store has an older schema than this version.",
        "`chargehand migrate`, or start a new node",
    ),
    "orphans": ("Processes of a dead node are still running.", "the next node kills them; or `kill PID`"),
    "clock": ("The store contains times in the future: the clock was set back.", "correct the clock"),
    "unread": ("Part of the store could not be read.", "`chargehand doctor --bundle FILE`, and report it"),
    "unexplained": (
        "Jobs wait although workers are free, for no known reason.",
        "`chargehand doctor --bundle FILE`, and report it",
    ),
    "nodes-elsewhere": (
        "No node runs on this machine, but on others.",
        "to examine their workers, run `chargehand doctor` there",
    ),
    "pooler": (
        "A pooler is in front of the server: prepared statements are not used, and jobs are found by polling.",
        "nothing, or give the nodes a URL that leads to the server itself",
    ),
    "no-listen": (
        "The server refuses LISTEN, or cannot be reached for it: jobs are found by polling.",
        "nothing, or give the nodes a URL that leads to the server itself",
    ),
    "sessions-hidden": (
        "The user may not see what the sessions of other users do.",
        "`GRANT pg_read_all_stats TO USER`",
    ),
    "node-starting": ("The node was started a moment ago.", "wait a moment"),
    "busy": ("All workers are busy; the other jobs wait.", "`chargehand scale CREW N`, if the machine has capacity"),
    "limit": (
        "The maximum number of jobs of a queue or a key is running.",
        "raise `limit` or `limit_per_key` of the crew",
    ),
    "rate": (
        "As many jobs of a queue or a key were started as its rate allows.",
        "wait, or raise `rate` or `rate_per_key` of the crew",
    ),
    "following": ("All waiting jobs of a queue wait for other jobs.", "wait; `chargehand jobs show ID`"),
    "future": ("All waiting jobs are scheduled for later.", "nothing; `chargehand jobs list`"),
    "failed-jobs": ("Jobs have failed permanently.", "`chargehand jobs list --state failed`"),
}
"""The causes by id, most severe and most likely first, each with its meaning and its remedy."""

_ORDER = {cause: number for number, cause in enumerate(CAUSES)}
_RANK = {severity: number for number, severity in enumerate(Severity)}


def in_order(findings: list[Finding]) -> list[Finding]:
    """Sorts findings by severity, then by the order of CAUSES; a pause, which somebody wanted, follows all faults."""
    return sorted(findings, key=_place)


def _place(finding: Finding) -> tuple[int, bool, int, str]:
    wanted = finding.cause == "paused"
    rank = _RANK[Severity.WARNING] if wanted and finding.severity is Severity.ERROR else _RANK[finding.severity]
    return rank, wanted, _ORDER[finding.cause], finding.about
