"""The reading parts of an SQLite store. They run beside writers: they take no lock and write nothing."""

import json
from collections.abc import Sequence
from typing import Any

from chargehand import clock
from chargehand.codec import MARK
from chargehand.model.access import ApiKey, Operation, OperationFilter, Session
from chargehand.model.flows import ORDINAL_BITS, Predecessor, PredecessorFilter, Related
from chargehand.model.job import Attempt, JobRecord, State
from chargehand.model.records import (
    ClaimRow,
    Counts,
    CrashFilter,
    CrashRecord,
    CrewRow,
    FailuresFound,
    GivenUpMark,
    HealthRow,
    Holder,
    JobFilter,
    JobRun,
    JobsFound,
    JobSize,
    LastLife,
    LivingNode,
    NodeReply,
    NodeRequest,
    NodeRow,
    Pause,
    RecurringPlan,
    RecurringState,
    RestartNote,
    SearchPlace,
    SizesFound,
    Snapshot,
    Sort,
    Tally,
)
from chargehand.stores.matching import Condition, joined
from chargehand.stores.rows import about_of, clean, columns, counts_of, json_text, readable, records, where
from chargehand.stores.searching import Search
from chargehand.stores.sqlite.database import Database
from chargehand.stores.sqlite.flows import HELD_AHEAD
from chargehand.stores.sqlite.rates import rate_next
from chargehand.stores.sqlite.searching import MATCHING, SqliteSearching

_STATES = {
    State.QUEUED: f"(state = 'queued' OR {HELD_AHEAD})",
    State.RUNNING: f"state = 'running' AND NOT ({HELD_AHEAD})",
}
_FIELDS = {
    "failures": "attempts",
    "claim": "iif(state = 'queued' OR fence = 0, NULL, CAST(fence AS TEXT))",
    "state": f"iif({HELD_AHEAD}, 'queued', state)",
}
_JOB_COLUMNS = {
    **_FIELDS,
    "waits_for": """
iif(state = 'queued' AND waits_for = 'jobs', (SELECT count(DISTINCT predecessor)
  FROM chargehand_edge AS e INDEXED BY chargehand_edge_open WHERE e.job = seq AND e.open = 1), 0)
""",
    "share": "nullif(share, '')",
}
_JOB_FIELDS = columns(JobRecord, **_JOB_COLUMNS)
_CONTEXT = ("meta", "traceparent")
_WITHOUT_CONTEXT = {_JOB_FIELDS: columns(JobRecord, **_JOB_COLUMNS, **dict.fromkeys(_CONTEXT, "NULL"))}
"""What a store that was made by a version without `meta` and traces has instead."""
_OF_FLOWS = ("flow", "parent", "share", "sequence", "expires_at_ms", *_CONTEXT)
_WITHOUT_FLOWS = {
    _JOB_FIELDS: columns(JobRecord, **_FIELDS, **dict.fromkeys(_OF_FLOWS, "NULL"), waits_for="0"),
    "coalesce(place, seq), seq": "seq",
}
"""What a store that was made by a version without flows has instead."""
# SQLite knows the length of a text without reading it.
_JOB_SIZE = "id, seq, octet_length(payload) + ifnull(octet_length(result), 0) + ifnull(octet_length(error), 0)"
_GET = f"SELECT {_JOB_FIELDS} FROM chargehand_job WHERE id = ?"
_GET_BY_ALIAS = f"""
SELECT {_JOB_FIELDS} FROM chargehand_job WHERE seq = (SELECT job FROM chargehand_alias WHERE id = ?)
"""
_FOLLOWERS = f"""
SELECT {_JOB_FIELDS} FROM chargehand_job WHERE seq IN (
  SELECT e.job FROM chargehand_edge AS e INDEXED BY chargehand_edge_predecessor
  WHERE e.predecessor = (SELECT seq FROM chargehand_job WHERE id = ?1) AND e.nr >= 0)
ORDER BY seq LIMIT ?2
"""
_PREDECESSORS = f"""
SELECT p.id, p.seq, e.nr, e.predecessor << {ORDINAL_BITS}, p.queue, p.label, p.state, p.reason, {{texts}}
FROM chargehand_edge AS e CROSS JOIN chargehand_job AS p ON p.seq = e.predecessor
WHERE e.job = (SELECT seq FROM chargehand_job WHERE id = ?) AND e.nr >= 0
  AND (e.nr, e.predecessor) > (?, ? >> {ORDINAL_BITS}) AND {{condition}} ORDER BY e.nr, p.seq LIMIT ?
"""
# The same if there are some whose order is another one. All are sorted, so their texts are read afterwards.
_PREDECESSORS_SORTED = f"""
SELECT p.id, p.seq, e.nr, e.place, p.queue, p.label, p.state, p.reason, {{texts}}
FROM (
    SELECT e.nr, e.predecessor, coalesce(e.ordinal, e.predecessor << {ORDINAL_BITS}) AS place
    FROM chargehand_edge AS e CROSS JOIN chargehand_job AS p ON p.seq = e.predecessor
    WHERE e.job = (SELECT seq FROM chargehand_job WHERE id = ?) AND e.nr >= 0
      AND (e.nr, coalesce(e.ordinal, e.predecessor << {ORDINAL_BITS})) > (?, ?) AND {{condition}}
    ORDER BY 1, 3 LIMIT ?) AS e
  CROSS JOIN chargehand_job AS p ON p.seq = e.predecessor
ORDER BY e.nr, e.place
"""
_HAS_ORDINALS = """
SELECT EXISTS (SELECT 1 FROM chargehand_edge INDEXED BY chargehand_edge_ordinal
  WHERE job = (SELECT seq FROM chargehand_job WHERE id = ?) AND ordinal IS NOT NULL)
"""
_RELATED = """
SELECT
  (SELECT count(*) FROM chargehand_edge AS e WHERE e.job = j.seq AND e.nr >= 0),
  (SELECT count(DISTINCT e.job) FROM chargehand_edge AS e INDEXED BY chargehand_edge_predecessor
   WHERE e.predecessor = j.seq AND e.nr >= 0),
  (SELECT count(*) FROM chargehand_job AS c INDEXED BY chargehand_job_parent WHERE c.parent = j.id)
    {adopted}
FROM chargehand_job AS j WHERE j.id = ?
"""
_ADOPTED_COUNT = """
+ (SELECT count(DISTINCT a.job) FROM chargehand_alias AS a INDEXED BY chargehand_alias_parent
    CROSS JOIN chargehand_job AS c ON c.seq = a.job
    WHERE a.parent = j.id AND a.parent IS NOT NULL AND c.parent IS NOT j.id)
"""
_CHILDREN = f"""
SELECT {_JOB_FIELDS} FROM chargehand_job INDEXED BY chargehand_job_parent WHERE parent = ?1 ORDER BY seq LIMIT ?2
"""
_ADOPTED = """
SELECT a.job, min(a.ordinal) FROM chargehand_alias AS a INDEXED BY chargehand_alias_parent
  CROSS JOIN chargehand_job AS c ON c.seq = a.job
WHERE a.parent = ?1 AND a.parent IS NOT NULL AND c.parent IS NOT ?1 GROUP BY a.job ORDER BY 2 LIMIT ?2
"""
_BY_NUMBERS = f"SELECT {_JOB_FIELDS} FROM chargehand_job WHERE seq IN (SELECT value FROM json_each(?))"
_ATTEMPTS = f"""
SELECT {columns(Attempt, claim="CAST(fence AS TEXT)")} FROM chargehand_attempt
WHERE job = coalesce((SELECT seq FROM chargehand_job WHERE id = ?1), (SELECT job FROM chargehand_alias WHERE id = ?1))
ORDER BY fence
"""
# Escapes are compared as people see them.
_SAYS = f"""
EXISTS (SELECT 1 FROM (SELECT lower(?) AS wanted, '{MARK}' AS mark)
  WHERE instr(lower(id), wanted) OR instr(replace(lower(label), mark, '\\'), wanted)
  OR instr(replace(lower(key), mark, '\\'), wanted) OR instr(replace(lower(item), mark, '\\'), wanted)
  OR instr(lower(error), wanted))
"""
# Each SELECT is answered from an index alone, except that of the running jobs, which are few.
_COUNTS = f"""
SELECT queue, 'queued', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for IS NULL GROUP BY queue
UNION ALL
SELECT queue, 'future', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for = 'time' GROUP BY queue
UNION ALL
SELECT queue, 'limited', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for = 'limit' GROUP BY queue
UNION ALL
SELECT queue, 'following', count(*), NULL FROM chargehand_job
  WHERE state = 'queued' AND waits_for = 'jobs' GROUP BY queue
UNION ALL
SELECT queue, iif({HELD_AHEAD}, 'queued', 'running'), count(*), NULL FROM chargehand_job
  WHERE state = 'running' GROUP BY 1, 2
UNION ALL
SELECT queue, state, count(*), max(finished_ms) FROM chargehand_job
  WHERE state IN ('done', 'failed', 'cancelled') GROUP BY queue, state
"""
# Both scan the running jobs, which are few.
_CANCELLING = """
SELECT id, fence FROM chargehand_job INDEXED BY chargehand_job_running
WHERE state = 'running' AND cancel_ms IS NOT NULL ORDER BY cancel_ms, seq
"""
_CLAIMS = f"""
SELECT {columns(ClaimRow, claim="CAST(fence AS TEXT)")} FROM chargehand_job INDEXED BY chargehand_job_running
WHERE state = 'running' ORDER BY started_ms, seq LIMIT ?
"""
_RECURRING = f"SELECT {columns(RecurringPlan)} FROM chargehand_recurring ORDER BY name"
_RECURRING_STATES = f"SELECT {columns(RecurringState)} FROM chargehand_recurrence ORDER BY name"
_RUNS = f"SELECT {columns(JobRun)} FROM chargehand_job WHERE id IN (SELECT value FROM json_each(?))"
_CREW = {"limit": "allowed", "limit_per_key": "allowed_per_key", "hide": "coalesce(hide, '[]')"}
_NOTHING_HIDDEN = {**_CREW, "hide": "'[]'"}
_CREW_RATES = {"rate": "NULL", "rate_per_key": "NULL"}
_CREWS, _CREWS_UNHIDDEN, _CREWS_UNRATED = (
    f"SELECT {fields} FROM chargehand_crew ORDER BY name"
    for fields in (
        columns(CrewRow, **_CREW),
        columns(CrewRow, **_NOTHING_HIDDEN),
        columns(CrewRow, **_NOTHING_HIDDEN, **_CREW_RATES),
    )
)
_PAUSES = f"""
SELECT {columns(Pause, left_ms="until_ms - ?1")} FROM chargehand_pause
WHERE until_ms IS NULL OR until_ms > ?1 ORDER BY scope
"""
_HEALTH = f"""
SELECT {columns(HealthRow, age_ms="?1 - last_heartbeat_ms", node_lives="1", boot="NULL", pid_namespace="NULL")}
FROM chargehand_health ORDER BY node, component
"""
_NODE_CREWS = """
(SELECT json_group_array(json_object('name', c.name, 'queue', c.queue, 'workers', coalesce(c.scaled, c.workers))
  ORDER BY c.name) FROM chargehand_crew c)
"""
# The row of a node that was stopped stays; its health rows do not.
_NODES = f"""
SELECT {columns(NodeRow, lives="1", age_ms="?1 - last_heartbeat_ms", crews=_NODE_CREWS)}
FROM chargehand_node n JOIN chargehand_health a ON a.node = n.name AND a.component = 'app'
"""
_CRASHES = f"SELECT {columns(CrashRecord, age_ms='?1 - at_ms')} FROM chargehand_crash"
_NO_NODE = "''"
_GIVEN_UP = f"SELECT {columns(GivenUpMark, node=_NO_NODE)} FROM chargehand_given_up ORDER BY component"
_KEYS = f"SELECT {columns(ApiKey)} FROM chargehand_key ORDER BY created_ms, id"
_SESSIONS = f"SELECT {columns(Session)} FROM chargehand_session WHERE expires_ms > ?"
_OPERATIONS = f"SELECT {columns(Operation)} FROM chargehand_operation"
_SNAPSHOTS = f"""
SELECT {columns(Snapshot)} FROM chargehand_history WHERE timestamp_ms >= ? ORDER BY timestamp_ms LIMIT ?
"""
# Steps through the index from queue to queue and never over the jobs of one queue. A scheduled job that has become due
# stays among the future ones until the next claim from its queue; this is asked just when no such claim comes.
_WAITING = """
WITH RECURSIVE
  ready(queue) AS (
    SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_ready
    WHERE state = 'queued' AND waits_for IS NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_ready
            WHERE state = 'queued' AND waits_for IS NULL AND queue > ready.queue)
    FROM ready WHERE queue IS NOT NULL),
  future(queue) AS (
    SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_future
    WHERE state = 'queued' AND waits_for = 'time'
    UNION ALL
    SELECT (SELECT min(queue) FROM chargehand_job INDEXED BY chargehand_job_future
            WHERE state = 'queued' AND waits_for = 'time' AND queue > future.queue)
    FROM future WHERE queue IS NOT NULL),
  due(queue, since_ms) AS (
    SELECT queue, min(?1, (SELECT run_at_ms FROM chargehand_job INDEXED BY chargehand_job_ready
                           WHERE queue = ready.queue AND state = 'queued' AND waits_for IS NULL
                           ORDER BY priority DESC, coalesce(place, seq), seq LIMIT 1))
    FROM ready WHERE queue IS NOT NULL
    UNION ALL
    SELECT queue, (SELECT min(run_at_ms) FROM chargehand_job INDEXED BY chargehand_job_future
                   WHERE queue = future.queue AND state = 'queued' AND waits_for = 'time')
    FROM future WHERE queue IS NOT NULL)
SELECT queue, ?1 - min(since_ms) FROM due WHERE since_ms <= ?1 GROUP BY queue ORDER BY queue
"""
_RESTARTS = """
SELECT component, written_ms, fingerprint, charged, streak, rested_ms, restarts, restarts_total FROM chargehand_worker
WHERE written_ms IS NOT NULL ORDER BY component
"""


class SqliteJobReading:
    """Implements `chargehand.store.JobReading`."""

    def __init__(
        self,
        db: Database,
        *,
        rated: bool = True,
        flowing: bool = True,
        contextual: bool = True,
        adopting: bool = True,
    ) -> None:
        """`rated`: the store has the tables of rates; `flowing`: it has those of flows; `contextual`: jobs have
        `meta` and traces; `adopting`: it knows which jobs have the keys of children."""
        self._db, self._rated, self._adopting = db, rated, adopting
        self._missing = {} if contextual else _WITHOUT_CONTEXT if flowing else _WITHOUT_FLOWS
        self._searching = SqliteSearching(db, _JOB_FIELDS, _JOB_SIZE, self._conditions, self.counts)

    def _all(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        for present, missing in self._missing.items():
            sql = sql.replace(present, missing)
        return self._db.all(sql, bindings)

    def get(self, job_id: str) -> JobRecord | None:
        rows = self._all(_GET, (job_id,)) or self._all(_GET_BY_ALIAS, (job_id,))
        return next(iter(records(JobRecord, rows)), None)

    def find(self, which: JobFilter) -> list[JobRecord]:
        return records(JobRecord, self._select(_JOB_FIELDS, which))

    def sizes(self, which: JobFilter) -> list[JobSize]:
        return [JobSize(*row) for row in self._select(_JOB_SIZE, which)]

    def search(
        self, which: JobFilter, sort: Sort = Sort.NEWEST, after: SearchPlace | None = None, seconds: float = 1.0
    ) -> JobsFound:
        return self._search(which, seconds).page(sort, after)

    def search_sizes(self, which: JobFilter, after: SearchPlace | None = None, seconds: float = 1.0) -> SizesFound:
        return self._search(which, seconds).sizes(after)

    def tally(self, which: JobFilter, seconds: float = 1.0) -> Tally:
        return self._search(which, seconds).tally()

    def failures(self, which: JobFilter, most: int, seconds: float = 1.0) -> FailuresFound:
        return self._search(which, seconds).failures(most)

    def named(self, ending: str, limit: int = 10) -> list[str]:
        return self._searching.named(ending, limit)

    def _search(self, which: JobFilter, seconds: float) -> Search:
        return Search(self._searching, which, seconds, clock.monotonic)

    def _select(self, fields: str, which: JobFilter) -> list[tuple[Any, ...]]:
        """Returns these fields of a page of jobs, newest first."""
        condition, bindings = joined(self._conditions(which))
        source, order = "chargehand_job", "seq"
        if which.tag is not None:  # the rows of the tag are read newest first, so a page costs what it passes
            source, order = "chargehand_tag CROSS JOIN chargehand_job ON seq = job", "job"
            condition, bindings = f"tag = ? AND {condition}", [clean(which.tag), *bindings]
        sql = f"SELECT {fields} FROM {source} WHERE {condition} ORDER BY {order} DESC LIMIT ?"
        return self._all(sql, (*bindings, which.limit))

    def _conditions(self, which: JobFilter) -> list[Condition]:
        """Returns the conditions of a filter, apart from its tag."""
        now = self._db.now_ms()
        asked: dict[str, Any] = {
            "queue = ?": which.queue,
            "state = ?": None if which.state in _STATES else which.state and which.state.value,
            "reason = ?": which.reason,
            "flow = ?": which.flow,
            _SAYS: which.text and readable(which.text),
            "id IN (SELECT value FROM json_each(?))": None if which.ids is None else json.dumps(which.ids),
            "finished_ms <= ?": None if which.older_ms is None else now - which.older_ms,
            "created_ms >= ?": None if which.since_ms is None else now - which.since_ms,
            "created_ms <= ?": None if which.until_ms is None else now - which.until_ms,
            "seq < (SELECT seq FROM chargehand_job WHERE id = ?)": which.before,
            "seq < ?": which.below,
        }
        found: list[Condition] = [(sql, (value,)) for sql, value in asked.items() if value is not None]
        if which.state is not None and which.state in _STATES:
            found.append((_STATES[which.state], ()))
        return found + [MATCHING.condition(match) for match in which.matches]

    def predecessors(self, which: PredecessorFilter) -> list[Predecessor]:
        condition, bindings = where({"p.queue = ?": which.queue})
        sql = _PREDECESSORS
        if self._adopting and self._db.all(_HAS_ORDINALS, (which.job,))[0][0]:
            sql = _PREDECESSORS_SORTED
        sql = sql.format(texts="p.result, p.error" if which.texts else "NULL, NULL", condition=condition)
        after = which.after or (-1, -1)
        return records(Predecessor, self._db.all(sql, (which.job, *after, *bindings, which.limit)))

    def followers(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        return records(JobRecord, self._db.all(_FOLLOWERS, (job_id, limit)))

    def children(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        own = records(JobRecord, self._db.all(_CHILDREN, (job_id, limit)))
        places: dict[int, int] = dict(self._db.all(_ADOPTED, (job_id, limit))) if self._adopting else {}
        if not places:
            return own
        adopted = records(JobRecord, self._db.all(_BY_NUMBERS, (json_text(list(places)),)))
        every = own + adopted
        every.sort(key=lambda job: places.get(job.seq, job.seq << ORDINAL_BITS))
        return every[:limit]

    def related(self, job_id: str) -> Related:
        sql = _RELATED.format(adopted=_ADOPTED_COUNT if self._adopting else "")
        numbers = next(iter(self._db.all(sql, (job_id,))), (0, 0, 0))
        return Related(predecessors=numbers[0], followers=numbers[1], children=numbers[2])

    def attempts(self, job_id: str) -> list[Attempt]:
        return records(Attempt, self._db.all(_ATTEMPTS, (job_id,)))

    def counts(self) -> list[Counts]:
        return counts_of(self._db.all(_COUNTS), rate_next(self._db) if self._rated else {})

    def cancelling(self) -> list[tuple[str, int]]:
        return [(str(job_id), int(claim)) for job_id, claim in self._db.all(_CANCELLING)]

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        return records(ClaimRow, self._db.all(_CLAIMS, (limit,)))

    def recurring(self) -> list[RecurringPlan]:
        return records(RecurringPlan, self._db.all(_RECURRING))

    def recurring_states(self) -> list[RecurringState]:
        return records(RecurringState, self._db.all(_RECURRING_STATES))

    def runs(self, ids: Sequence[str]) -> list[JobRun]:
        return records(JobRun, self._db.all(_RUNS, (json.dumps(ids),)))

    def waiting(self) -> list[tuple[str, int]]:
        return [(str(queue), int(age)) for queue, age in self._all(_WAITING, (self._db.now_ms(),))]


class SqliteFleetReading:
    """Implements `chargehand.store.FleetReading`."""

    def __init__(self, db: Database, *, rated: bool = True, hides: bool = True) -> None:
        """`rated`: the store has the columns of rates; `hides`: it has that of hidden fields."""
        self._db = db
        self._crews = _CREWS if hides else _CREWS_UNHIDDEN if rated else _CREWS_UNRATED

    def crews(self, node: str | None = None, *, living: bool = False) -> list[CrewRow]:
        return records(CrewRow, self._db.all(self._crews))

    def pauses(self) -> list[Pause]:
        return records(Pause, self._db.all(_PAUSES, (self._db.now_ms(),)))

    def health(self) -> list[HealthRow]:
        return records(HealthRow, self._db.all(_HEALTH, (self._db.now_ms(),)))

    def nodes(self) -> list[NodeRow]:
        return records(NodeRow, self._db.all(_NODES, (self._db.now_ms(),)))

    def crash(self, crash_id: str) -> CrashRecord | None:
        rows = self._db.all(f"{_CRASHES} WHERE id = ?", (self._db.now_ms(), crash_id))
        return next(iter(records(CrashRecord, rows)), None)

    def crashes(self, which: CrashFilter) -> list[CrashRecord]:
        condition, bindings = where(
            {
                "node = ?": clean(which.node),
                "component = ?": which.component,
                "crew = ?": which.crew,
                "job = ?": clean(which.job),
                "(at_ms, seq) < (SELECT at_ms, seq FROM chargehand_crash WHERE id = ?)": which.before,
            }
        )
        sql = f"{_CRASHES} WHERE {condition} ORDER BY at_ms DESC, seq DESC LIMIT ?"
        return records(CrashRecord, self._db.all(sql, (self._db.now_ms(), *bindings, which.limit)))

    def last_life(self, node: str) -> LastLife | None:
        rows = self._db.all("SELECT life, about FROM chargehand_node")
        return LastLife(rows[0][0], about_of(rows[0][1])) if rows else None

    def given_up(self, node: str | None = None) -> list[GivenUpMark]:
        return records(GivenUpMark, self._db.all(_GIVEN_UP))

    def restarts(self, node: str | None = None) -> list[RestartNote]:
        return [self._restart_note(*row) for row in self._db.all(_RESTARTS)]

    def _restart_note(
        self, component: str, written: int, fingerprint: str, charged: str, streak: int, rested: int | None,
        restarts: int, total: int,
    ) -> RestartNote:  # fmt: skip
        # The times were written together, so the clock may have been set since only between them and now.
        since = max(0, self._db.now_ms() - written)
        return RestartNote(
            component=component,
            fingerprint=fingerprint,
            charged_age_ms=tuple(since + written - at for at in json.loads(charged)),
            streak=streak,
            rested_age_ms=None if rested is None else since + written - rested,
            restarts=restarts,
            restarts_total=total,
        )

    def snapshots(self, since_ms: int, limit: int) -> list[Snapshot]:
        return records(Snapshot, self._db.all(_SNAPSHOTS, (since_ms, limit)))

    def living(self) -> list[LivingNode]:
        return []

    def requests(self, holder: Holder) -> list[NodeRequest]:
        return []

    def replies(self, ids: Sequence[str]) -> list[NodeReply]:
        return []


class SqliteAccessReading:
    """Implements `chargehand.store.AccessReading`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def api_keys(self) -> list[ApiKey]:
        return records(ApiKey, self._db.all(_KEYS))

    def sessions(self) -> list[Session]:
        return records(Session, self._db.all(_SESSIONS, (self._db.now_ms(),)))

    def operations(self, which: OperationFilter) -> list[Operation]:
        asked = {"who = ?": which.who, "verb = ?": which.verb, "target = ?": which.target, "id < ?": which.before}
        condition, bindings = where(asked)
        sql = f"{_OPERATIONS} WHERE {condition} ORDER BY id DESC LIMIT ?"
        return records(Operation, self._db.all(sql, (*bindings, which.limit)))
