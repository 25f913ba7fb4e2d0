"""The reading parts of a PostgreSQL store. They write nothing and take no lock."""

import json
from collections.abc import Sequence
from typing import Any

from chargehand import clock
from chargehand.codec import MARK
from chargehand.model.access import ApiKey, Operation, OperationFilter, Session
from chargehand.model.flows import (
    ORDINAL_BITS,
    FlowCounts,
    FlowFilter,
    FlowRecord,
    FlowStage,
    FlowTotals,
    Predecessor,
    PredecessorFilter,
    Related,
    stages_of,
)
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
from chargehand.stores.postgres import session, statements
from chargehand.stores.postgres.rates import rate_next
from chargehand.stores.postgres.searching import MATCHING, PostgresSearching, numbered
from chargehand.stores.postgres.statements import NOW
from chargehand.stores.rows import about_of, clean, columns, counts_of, readable, records, where
from chargehand.stores.searching import Search

LONGEST_REQUEST_MS = 15_000
"""How old a request to a node may be: its caller waits no longer, and may have died before it could withdraw it."""

_STORE = statements.load("store")
_FLEET = statements.load("fleet")
# A job that the node holds ahead is shown as queued: no worker has it.
_HELD_AHEAD = "t.worker IS NULL AND t.ahead IS TRUE"
_STATES = {
    State.QUEUED: f"t.seq IS NOT NULL AND (t.claim IS NULL OR {_HELD_AHEAD})",
    State.RUNNING: f"t.claim IS NOT NULL AND NOT ({_HELD_AHEAD})",
}
_ENDS = "LEFT JOIN chargehand_live t ON t.seq = j.seq LEFT JOIN chargehand_end e ON e.seq = j.seq"
_JOINED = f"chargehand_job j {_ENDS}"
_TAGGED = f"chargehand_tag g JOIN chargehand_job j ON j.seq = g.job {_ENDS}"
_STATE = f"coalesce(e.state, CASE WHEN t.claim IS NULL OR {_HELD_AHEAD} THEN 'queued' ELSE 'running' END)"
_JOB_FIELDS = columns(
    JobRecord,
    **{name: f"j.{name}" for name in (
        "id", "queue", "label", "payload", "max_attempts", "timeout_ms", "key", "created_ms", "limit_key", "item",
        "tags", "seq", "flow", "parent", "share", "sequence", "meta", "traceparent",
    )},
    **{name: f"coalesce(t.{name}, e.{name})" for name in (
        "crashes", "interruptions", "progress", "started_ms", "cancel_ms", "error",
    )},
    **{name: f"e.{name}" for name in ("result", "reason", "finished_ms")},
    **{name: f"t.{name}" for name in ("node", "worker")},
    state=_STATE,
    priority="-j.rank",
    run_at_ms="coalesce(t.run_at_ms, e.run_at_ms, j.run_at_ms)",
    failures="coalesce(t.attempts, e.attempts, 0)",
    attempts="coalesce(t.attempts, e.attempts, 0)",
    claim="coalesce(t.claim, e.claim)::text",
    waits_for="CASE WHEN t.waits = 'jobs' "
    "THEN (SELECT count(DISTINCT g.predecessor) FROM chargehand_edge g WHERE g.job = j.seq AND g.open) ELSE 0 END",
    expires_at_ms="CASE WHEN t.seq IS NULL THEN j.expires_at_ms ELSE t.expires_at_ms END",
)  # fmt: skip
_JOB_SIZE = """
j.id, j.seq, octet_length(payload) + coalesce(octet_length(e.result), 0)
  + coalesce(octet_length(coalesce(t.error, e.error)), 0)
"""
_GET = f"SELECT {_JOB_FIELDS} FROM {_JOINED} WHERE j.id = $1".encode()
_GET_BY_ALIAS = f"""
SELECT {_JOB_FIELDS} FROM {_JOINED} WHERE j.seq = (SELECT job FROM chargehand_alias WHERE id = $1)
""".encode()
# The attempt that ended well has no row of its own: the end of the job has all of it.
_ATTEMPTS = b"""
WITH one AS MATERIALIZED (SELECT coalesce((SELECT seq FROM chargehand_job WHERE id = $1),
  (SELECT job FROM chargehand_alias WHERE id = $1)) AS seq)
SELECT claim::text, node, worker, pid, started_ms, duration_ms, outcome, error FROM (
  SELECT nr, claim, node, worker, pid, started_ms, duration_ms, outcome, error FROM chargehand_attempt, one
  WHERE job = one.seq
  UNION ALL
  SELECT NULL, claim, node, worker, pid, finished_ms - duration_ms, duration_ms, 'done', NULL FROM chargehand_end e, one
  WHERE e.seq = one.seq AND state = 'done' AND claim IS NOT NULL
    AND NOT EXISTS (SELECT FROM chargehand_attempt a WHERE a.job = e.seq AND a.claim = e.claim)) AS every
ORDER BY nr NULLS LAST
"""
# Escapes are compared as people see them.
_SAYS = f"""
EXISTS (SELECT FROM (SELECT lower(?) AS wanted, '{MARK}'::text AS mark) AS s
  WHERE position(wanted IN lower(j.id)) > 0 OR position(wanted IN replace(lower(j.label), mark, '\\')) > 0
  OR position(wanted IN replace(lower(j.key), mark, '\\')) > 0
  OR position(wanted IN replace(lower(j.item), mark, '\\')) > 0
  OR position(wanted IN lower(coalesce(t.error, e.error))) > 0)
"""
_OF_JOB = """(SELECT coalesce((SELECT seq FROM chargehand_job WHERE id = named), (SELECT job FROM chargehand_alias
  WHERE id = named)) FROM (SELECT ?::text AS named) AS given)"""
_FOLLOWERS = f"""
SELECT {_JOB_FIELDS} FROM {_JOINED}
WHERE j.seq IN (SELECT job FROM chargehand_edge WHERE predecessor = {_OF_JOB} AND nr >= 0)
ORDER BY j.seq LIMIT ?
"""
# Jobs that have the keys of children are among them.
_CHILDREN = f"""
WITH p AS MATERIALIZED (SELECT id FROM chargehand_job WHERE seq = {_OF_JOB}),
c AS (
  SELECT seq, min(place) AS place FROM (
    SELECT seq, seq << {ORDINAL_BITS} AS place FROM chargehand_job WHERE parent = (SELECT id FROM p)
    UNION ALL
    SELECT job, ordinal FROM chargehand_alias WHERE parent = (SELECT id FROM p)) AS c
  GROUP BY seq ORDER BY 2 LIMIT ?)
SELECT {_JOB_FIELDS} FROM c
  CROSS JOIN LATERAL (SELECT * FROM chargehand_job WHERE seq = c.seq OFFSET 0) AS j
  LEFT JOIN LATERAL (SELECT * FROM chargehand_live WHERE seq = c.seq OFFSET 0) AS t ON true
  LEFT JOIN LATERAL (SELECT * FROM chargehand_end WHERE seq = c.seq OFFSET 0) AS e ON true
ORDER BY c.place
"""
# In the order in which the job has named them, and each with its children.
# OFFSET 0: the edges are read in order, and each row of a page is looked up. Joined, whole tables are read for a page.
_PREDECESSORS = """
SELECT {fields} FROM ({edges}) AS g
  CROSS JOIN LATERAL (SELECT * FROM chargehand_job WHERE seq = g.predecessor OFFSET 0) AS j
  LEFT JOIN LATERAL (SELECT * FROM chargehand_live WHERE seq = g.predecessor OFFSET 0) AS t ON true
  LEFT JOIN LATERAL (SELECT * FROM chargehand_end WHERE seq = g.predecessor OFFSET 0) AS e ON true
WHERE {jobs} ORDER BY g.nr, {order} LIMIT ?
"""
# The edges with the place of each, in order. If there is one with an ordinal, all must be sorted.
_EDGES = f"""
SELECT nr, predecessor, predecessor << {ORDINAL_BITS} AS place FROM chargehand_edge g
WHERE g.nr >= 0 AND {{conditions}} ORDER BY nr, predecessor OFFSET 0
"""
_BEYOND = f"""
(g.nr, g.predecessor) > (
  SELECT (last ->> 0)::int, (last ->> 1)::bigint >> {ORDINAL_BITS} FROM (SELECT ?::json AS last) AS given)
"""
_EDGES_SORTED = f"""
SELECT nr, predecessor, coalesce(ordinal, predecessor << {ORDINAL_BITS}) AS place FROM chargehand_edge g
WHERE g.nr >= 0 AND {{conditions}} ORDER BY 1, 3 OFFSET 0
"""
_BEYOND_SORTED = f"""
(g.nr, coalesce(g.ordinal, g.predecessor << {ORDINAL_BITS})) > (
  SELECT (last ->> 0)::int, (last ->> 1)::bigint FROM (SELECT ?::json AS last) AS given)
"""
_HAS_ORDINALS = f"SELECT EXISTS (SELECT FROM chargehand_edge WHERE job = {_OF_JOB} AND ordinal IS NOT NULL)"
_PREDECESSOR = {
    "id": "j.id", "seq": "j.seq", "nr": "g.nr", "ordinal": "g.place", "queue": "j.queue", "label": "j.label",
    "state": _STATE, "reason": "e.reason",
}  # fmt: skip
_PREDECESSOR_FIELDS = columns(Predecessor, **_PREDECESSOR, result="e.result", error="coalesce(t.error, e.error)")
_PREDECESSOR_SHORT = columns(Predecessor, **_PREDECESSOR, result="NULL", error="NULL")
_RELATED = f"""
SELECT (SELECT count(*) FROM chargehand_edge g WHERE g.job = o.seq AND g.nr >= 0 AND g.predecessor > 0),
  (SELECT count(DISTINCT g.job) FROM chargehand_edge g WHERE g.predecessor = o.seq AND g.nr >= 0),
  (SELECT count(*) FROM chargehand_job c WHERE c.parent = o.id)
    + (SELECT count(DISTINCT a.job) FROM chargehand_alias a WHERE a.parent = o.id
      AND (SELECT c.parent FROM chargehand_job c WHERE c.seq = a.job) IS DISTINCT FROM o.id)
FROM chargehand_job o WHERE o.seq = {_OF_JOB}
"""
_STAGES = f"""
SELECT t.queue, CASE WHEN t.claim IS NULL OR {_HELD_AHEAD} THEN 'queued' ELSE 'running' END,
  t.waits IS NOT DISTINCT FROM 'jobs', count(*), min(t.started_ms), NULL::bigint
FROM chargehand_live t WHERE t.flow = $1 GROUP BY 1, 2, 3
UNION ALL
SELECT e.queue, e.state, false, count(*), min(e.started_ms), max(e.finished_ms)
FROM chargehand_end e WHERE e.flow = $1 GROUP BY 1, 2
""".encode()
_TOTALS = b"SELECT state, count(*) FROM chargehand_flow GROUP BY state"
# The counts are those of the rows.
_FLOW_COUNTS = f"""
LEFT JOIN LATERAL (
  SELECT count(*) FILTER (WHERE t.claim IS NULL OR {_HELD_AHEAD}) AS queued,
    count(*) FILTER (WHERE waits = 'jobs') AS following,
    count(*) FILTER (WHERE t.claim IS NOT NULL AND NOT ({_HELD_AHEAD})) AS running
  FROM chargehand_live t WHERE t.flow = f.id) AS l ON true
LEFT JOIN LATERAL (
  SELECT count(*) FILTER (WHERE state = 'done') AS done, count(*) FILTER (WHERE state = 'failed') AS failed,
    count(*) FILTER (WHERE state = 'cancelled') AS cancelled
  FROM chargehand_end e WHERE e.flow = f.id) AS e ON true
"""
_FLOWS = f"""
SELECT f.id, f.name, f.state, f.created_ms, f.ended_ms, f.ends, f.cancel_ms, f.on_end_job,
  queued, following, running, done, failed, cancelled
FROM chargehand_flow f {_FLOW_COUNTS} WHERE {{condition}} ORDER BY f.seq DESC LIMIT ?
"""
_COUNTED = FlowCounts.__struct_fields__
_NAMED = f"""
EXISTS (SELECT FROM (SELECT lower(?) AS wanted, '{MARK}'::text AS mark) AS s
  WHERE position(wanted IN lower(f.id)) > 0 OR position(wanted IN replace(lower(f.name), mark, '\\')) > 0)
"""
_EXIST = b"""
SELECT 'flow', f.id FROM chargehand_flow f WHERE f.id IN (SELECT json_array_elements_text($1::json))
UNION ALL
SELECT 'job', j.id FROM chargehand_job j WHERE j.id IN (SELECT json_array_elements_text($2::json))
"""
_COUNTS = f"""
SELECT queue, CASE WHEN claim IS NOT NULL AND NOT ({_HELD_AHEAD}) THEN 'running' WHEN waits = 'time' THEN 'future'
  WHEN waits = 'limit' THEN 'limited' WHEN waits = 'jobs' THEN 'following' ELSE 'queued' END, count(*), NULL
FROM chargehand_live t GROUP BY 1, 2
UNION ALL
SELECT queue, state, count(*), max(finished_ms) FROM chargehand_end GROUP BY queue, state
""".encode()
_CANCELLING = b"""
SELECT j.id, t.claim
FROM (SELECT seq, claim, cancel_ms FROM chargehand_live WHERE cancel_ms IS NOT NULL ORDER BY seq OFFSET 0) AS t
  CROSS JOIN LATERAL (SELECT id FROM chargehand_job WHERE seq = t.seq OFFSET 0) AS j
WHERE t.claim IS NOT NULL ORDER BY t.cancel_ms, t.seq
"""
_CLAIM_FIELDS = columns(
    ClaimRow, id="j.id", queue="t.queue", label="j.label", item="j.item", claim="t.claim::text", cancel_ms="t.cancel_ms"
)
_CLAIMS = f"""
SELECT {_CLAIM_FIELDS} FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq
WHERE t.claim IS NOT NULL ORDER BY t.started_ms, t.seq LIMIT $1::bigint
""".encode()
_RECURRING = f'SELECT {columns(RecurringPlan)} FROM chargehand_recurring ORDER BY name COLLATE "C"'.encode()
_RECURRING_STATES = f'SELECT {columns(RecurringState)} FROM chargehand_recurrence ORDER BY name COLLATE "C"'.encode()
_RUN_FIELDS = columns(
    JobRun, id="j.id", state=_STATE, created_ms="j.created_ms", started_ms="coalesce(t.started_ms, e.started_ms)",
    finished_ms="e.finished_ms",
)  # fmt: skip
_RUNS = f"SELECT {_RUN_FIELDS} FROM {_JOINED} WHERE j.id = ANY ($1::text[])".encode()
_CREW = {"limit": "allowed", "limit_per_key": "allowed_per_key", "hide": "coalesce(hide, '[]')"}
_NOTHING_HIDDEN = {**_CREW, "hide": "'[]'"}
_CREW_FIELDS = columns(CrewRow, **_CREW)
_LIVING = "node IN (SELECT name FROM chargehand_node)"
# Several nodes may serve one crew: the last registration describes it.
_CREW_RATES = {"rate": "NULL", "rate_per_key": "NULL"}
_CREWS, _CREWS_UNHIDDEN, _CREWS_UNRATED = (
    f"""
SELECT DISTINCT ON (name COLLATE "C") {fields} FROM chargehand_crew
WHERE node = coalesce($1, node) AND (NOT $2::boolean OR {_LIVING})
ORDER BY name COLLATE "C", registered_ms DESC, node
""".encode()
    for fields in (
        _CREW_FIELDS,
        columns(CrewRow, **_NOTHING_HIDDEN),
        columns(CrewRow, **_NOTHING_HIDDEN, **_CREW_RATES),
    )
)
_LIVING_CREWS = f"SELECT {_CREW_FIELDS} FROM chargehand_crew WHERE {_LIVING}".encode()
_PAUSES = f"""
SELECT {columns(Pause, left_ms=f"until_ms - {NOW}")} FROM chargehand_pause
WHERE until_ms IS NULL OR until_ms > {NOW} ORDER BY scope COLLATE "C"
""".encode()
_HEALTH_FIELDS = columns(
    HealthRow, incarnation="h.incarnation", age_ms=f"{NOW} - last_heartbeat_ms", node_lives="n.name IS NOT NULL",
    boot="n.about::json ->> 'boot'", pid_namespace="n.about::json ->> 'pid_namespace'",
)  # fmt: skip
_HEALTH = f"""
SELECT {_HEALTH_FIELDS} FROM chargehand_health h LEFT JOIN chargehand_node n ON n.name = h.node
ORDER BY node COLLATE "C", component COLLATE "C"
""".encode()
_NODE_CREWS = """
coalesce((SELECT json_agg(json_build_object('name', c.name, 'queue', c.queue, 'workers', coalesce(c.scaled, c.workers))
  ORDER BY c.name COLLATE "C") FROM chargehand_crew c WHERE c.node = k.name), '[]'::json)::text
"""
# A node that is gone has left its health rows behind; one that was stopped has not.
_NODES = f"""
WITH known AS (
  SELECT name, true AS lives, started_ms, about FROM chargehand_node
  UNION ALL
  SELECT DISTINCT node, false, NULL::bigint, NULL FROM chargehand_health h
  WHERE NOT EXISTS (SELECT FROM chargehand_node n WHERE n.name = h.node))
SELECT {columns(NodeRow, name="k.name", age_ms=f"{NOW} - last_heartbeat_ms", crews=_NODE_CREWS)}
FROM known k LEFT JOIN chargehand_health a ON a.node = k.name AND a.component = 'app'
ORDER BY k.name COLLATE "C"
""".encode()
_CRASHES = f"SELECT {columns(CrashRecord, age_ms=f'{NOW} - at_ms')} FROM chargehand_crash"
_GIVEN_UP = f"""
SELECT {columns(GivenUpMark)} FROM chargehand_given_up WHERE node = coalesce($1, node)
ORDER BY component COLLATE "C", node COLLATE "C"
""".encode()
_KEYS = f'SELECT {columns(ApiKey)} FROM chargehand_key ORDER BY created_ms, id COLLATE "C"'.encode()
_SESSIONS = f"SELECT {columns(Session)} FROM chargehand_session WHERE expires_ms > {NOW}".encode()
_OPERATIONS = f"SELECT {columns(Operation)} FROM chargehand_operation"
_SNAPSHOTS = f"""
SELECT {columns(Snapshot)} FROM chargehand_history WHERE timestamp_ms >= $1::bigint
ORDER BY timestamp_ms LIMIT $2::bigint
""".encode()
# Steps through the index from queue to queue and never over the jobs of one queue.
_WAITING = f"""
WITH RECURSIVE
  ready(queue) AS (
    (SELECT queue FROM chargehand_live WHERE claim IS NULL AND waits IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM chargehand_live WHERE claim IS NULL AND waits IS NULL AND queue > ready.queue
      ORDER BY queue LIMIT 1)
    FROM ready WHERE queue IS NOT NULL),
  future(queue) AS (
    (SELECT queue FROM chargehand_live WHERE waits = 'time' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM chargehand_live WHERE waits = 'time' AND queue > future.queue ORDER BY queue LIMIT 1)
    FROM future WHERE queue IS NOT NULL),
  due(queue, since_ms) AS (
    SELECT queue, least({NOW}, (SELECT run_at_ms FROM chargehand_live t
      WHERE t.queue = ready.queue AND claim IS NULL AND waits IS NULL ORDER BY rank, place, seq LIMIT 1))
    FROM ready WHERE queue IS NOT NULL
    UNION ALL
    SELECT queue, (SELECT min(run_at_ms) FROM chargehand_live t WHERE t.queue = future.queue AND waits = 'time')
    FROM future WHERE queue IS NOT NULL)
SELECT queue, {NOW} - min(since_ms) FROM due WHERE since_ms <= {NOW} GROUP BY queue ORDER BY queue COLLATE "C"
""".encode()
_RESTARTS = f"""
SELECT node, component, {NOW}, written_ms, fingerprint, charged, streak, rested_ms, restarts, restarts_total
FROM chargehand_worker WHERE written_ms IS NOT NULL AND node = coalesce($2, node)
ORDER BY component COLLATE "C", node COLLATE "C"
""".encode()
_LAST_LIFE = b"""
SELECT incarnation, about, beat, backend IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = backend)
FROM chargehand_node WHERE name = $1
"""


def living_crews(db: session.Session) -> list[CrewRow]:
    """Returns the crews of all nodes that live: several rows of one name, if several nodes have it."""
    return records(CrewRow, db.rows(_LIVING_CREWS))


def now_ms(db: session.Session) -> int:
    """Returns the time of the store's clock."""
    ((found,),) = db.rows(_STORE["now"], (db.now,))
    return int(found)


class PostgresJobReading:
    """Implements `chargehand.store.JobReading`."""

    def __init__(self, db: session.Session, *, rated: bool = True) -> None:
        """`rated`: the store has the tables of rates."""
        self._db, self._rated = db, rated
        self._searching = PostgresSearching(
            db, fields=_JOB_FIELDS, short=_JOB_SIZE, source=_JOINED, state=_STATE, live=_STATES,
            conditions=self._conditions, counts=self.counts, now_ms=lambda: now_ms(db),
        )  # fmt: skip

    def get(self, job_id: str) -> JobRecord | None:
        rows = self._db.rows(_GET, (clean(job_id),)) or self._db.rows(_GET_BY_ALIAS, (clean(job_id),))
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
        source = _JOINED
        if which.tag is not None:
            condition, bindings = f"g.tag = ? AND {condition}", [clean(which.tag), *bindings]
            source = _TAGGED
        sql = f"SELECT {fields} FROM {source} WHERE {condition} ORDER BY j.seq DESC LIMIT ?"
        return self._db.rows(numbered(sql), (*bindings, which.limit))

    def _conditions(self, which: JobFilter) -> list[Condition]:
        """Returns the conditions of a filter, apart from its tag."""
        relative = (which.older_ms, which.since_ms, which.until_ms)
        now = now_ms(self._db) if any(each is not None for each in relative) else 0
        asked: dict[str, Any] = {
            "j.queue = ?": clean(which.queue),
            "e.state = ?": None if which.state in _STATES else which.state and which.state.value,
            "e.reason = ?": clean(which.reason),
            _SAYS: which.text and readable(which.text),
            "j.id = ANY (?::text[])": None if which.ids is None else [clean(each) for each in which.ids],
            "e.finished_ms <= ?::bigint": None if which.older_ms is None else now - which.older_ms,
            "j.created_ms >= ?::bigint": None if which.since_ms is None else now - which.since_ms,
            "j.created_ms <= ?::bigint": None if which.until_ms is None else now - which.until_ms,
            "j.seq < (SELECT seq FROM chargehand_job WHERE id = ?)": clean(which.before),
            "j.seq < ?::bigint": which.below,
            "j.flow = ?": clean(which.flow),
        }
        found: list[Condition] = [(sql, (value,)) for sql, value in asked.items() if value is not None]
        if which.state is not None and which.state in _STATES:
            found.append((_STATES[which.state], ()))
        return found + [MATCHING.condition(match) for match in which.matches]

    def predecessors(self, which: PredecessorFilter) -> list[Predecessor]:
        after = None if which.after is None else json.dumps(which.after)
        ((ordinals,),) = self._db.rows(numbered(_HAS_ORDINALS), (clean(which.job),))
        edges, beyond, order = _EDGES, _BEYOND, "g.predecessor"
        if ordinals:
            edges, beyond, order = _EDGES_SORTED, _BEYOND_SORTED, "g.place"
        conditions, named = where({f"g.job = {_OF_JOB}": clean(which.job), beyond: after})
        jobs, queue = where({"j.queue = ?": clean(which.queue)})
        fields = _PREDECESSOR_FIELDS if which.texts else _PREDECESSOR_SHORT
        edges = edges.format(conditions=conditions)
        sql = _PREDECESSORS.format(fields=fields, edges=edges, jobs=jobs, order=order)
        return records(Predecessor, self._db.rows(numbered(sql), (*named, *queue, which.limit)))

    def followers(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        return records(JobRecord, self._db.rows(numbered(_FOLLOWERS), (clean(job_id), limit)))

    def children(self, job_id: str, limit: int = 100) -> list[JobRecord]:
        return records(JobRecord, self._db.rows(numbered(_CHILDREN), (clean(job_id), limit)))

    def related(self, job_id: str) -> Related:
        numbers = next(iter(self._db.rows(numbered(_RELATED), (clean(job_id),))), (0, 0, 0))
        return Related(predecessors=numbers[0], followers=numbers[1], children=numbers[2])

    def attempts(self, job_id: str) -> list[Attempt]:
        return records(Attempt, self._db.rows(_ATTEMPTS, (clean(job_id),)))

    def counts(self) -> list[Counts]:
        return counts_of(self._db.rows(_COUNTS), rate_next(self._db) if self._rated else {})

    def cancelling(self) -> list[tuple[str, int]]:
        return [(str(job_id), int(claim)) for job_id, claim in self._db.rows(_CANCELLING)]

    def claims(self, limit: int = 1000) -> list[ClaimRow]:
        return records(ClaimRow, self._db.rows(_CLAIMS, (limit,)))

    def recurring(self) -> list[RecurringPlan]:
        return records(RecurringPlan, self._db.rows(_RECURRING))

    def recurring_states(self) -> list[RecurringState]:
        return records(RecurringState, self._db.rows(_RECURRING_STATES))

    def runs(self, ids: Sequence[str]) -> list[JobRun]:
        return records(JobRun, self._db.rows(_RUNS, ([clean(each) for each in ids],)))

    def waiting(self) -> list[tuple[str, int]]:
        return [(str(queue), int(age)) for queue, age in self._db.rows(_WAITING, (self._db.now,))]


class PostgresFlowReading:
    """Implements `chargehand.store.FlowReading`."""

    def __init__(self, db: session.Session) -> None:
        self._db = db

    def get(self, flow_id: str) -> FlowRecord | None:
        return next(iter(self._select({"f.id = ?": clean(flow_id)}, 1)), None)

    def find(self, which: FlowFilter) -> list[FlowRecord]:
        conditions = {
            "f.state = ?": which.state,
            _NAMED: which.text and readable(which.text),
            "f.seq < (SELECT seq FROM chargehand_flow WHERE id = ?)": clean(which.before),
        }
        return self._select(conditions, which.limit)

    def _select(self, conditions: dict[str, Any], limit: int) -> list[FlowRecord]:
        condition, bindings = where(conditions)
        rows = self._db.rows(numbered(_FLOWS.format(condition=condition)), (*bindings, limit))
        return [
            FlowRecord(
                id=flow_id, name=name, state=state, created_ms=created_ms, ended_ms=ended_ms, ends=ends,
                cancel_ms=cancel_ms, on_end=on_end, counts=FlowCounts(**dict(zip(_COUNTED, counts, strict=True))),
            )
            for flow_id, name, state, created_ms, ended_ms, ends, cancel_ms, on_end, *counts in rows
        ]  # fmt: skip

    def stages(self, flow_id: str) -> list[FlowStage]:
        return stages_of(self._db.rows(_STAGES, (clean(flow_id),)))

    def totals(self) -> FlowTotals:
        return FlowTotals(**{str(state): int(number) for state, number in self._db.rows(_TOTALS)})

    def exist(self, flows: Sequence[str], jobs: Sequence[str]) -> tuple[set[str], set[str]]:
        asked = [json.dumps([clean(each) for each in ids]) for ids in (flows, jobs)]
        rows = self._db.rows(_EXIST, asked)
        return {str(name) for kind, name in rows if kind == "flow"}, {str(name) for kind, name in rows if kind == "job"}


class PostgresFleetReading:
    """Implements `chargehand.store.FleetReading`."""

    def __init__(self, db: session.Session, *, rated: bool = True, hides: bool = True) -> None:
        """`rated`: the store has the columns of rates; `hides`: it has that of hidden fields."""
        self._db = db
        self._crews = _CREWS if hides else _CREWS_UNHIDDEN if rated else _CREWS_UNRATED

    def crews(self, node: str | None = None, *, living: bool = False) -> list[CrewRow]:
        return records(CrewRow, self._db.rows(self._crews, (node, living)))

    def pauses(self) -> list[Pause]:
        return records(Pause, self._db.rows(_PAUSES, (self._db.now,)))

    def health(self) -> list[HealthRow]:
        return records(HealthRow, self._db.rows(_HEALTH, (self._db.now,)))

    def nodes(self) -> list[NodeRow]:
        return records(NodeRow, self._db.rows(_NODES, (self._db.now,)))

    def crash(self, crash_id: str) -> CrashRecord | None:
        rows = self._db.rows(f"{_CRASHES} WHERE id = $2".encode(), (self._db.now, clean(crash_id)))
        return next(iter(records(CrashRecord, rows)), None)

    def crashes(self, which: CrashFilter) -> list[CrashRecord]:
        condition, bindings = where(
            {
                "node = ?": clean(which.node),
                "component = ?": clean(which.component),
                "crew = ?": clean(which.crew),
                "job = ?": clean(which.job),
                "(at_ms, seq) < (SELECT at_ms, seq FROM chargehand_crash WHERE id = ?)": clean(which.before),
            }
        )
        # The first question mark stands for the clock.
        sql = f"{_CRASHES} WHERE {condition} ORDER BY at_ms DESC, seq DESC LIMIT ?".replace("$1", "?", 1)
        return records(CrashRecord, self._db.rows(numbered(sql), (self._db.now, *bindings, which.limit)))

    def last_life(self, node: str) -> LastLife | None:
        rows = self._db.rows(_LAST_LIFE, (node,))
        return next((LastLife(life, about_of(about), *seen) for life, about, *seen in rows), None)

    def given_up(self, node: str | None = None) -> list[GivenUpMark]:
        return records(GivenUpMark, self._db.rows(_GIVEN_UP, (node,)))

    def restarts(self, node: str | None = None) -> list[RestartNote]:
        return [_restart_note(*row) for row in self._db.rows(_RESTARTS, (self._db.now, node))]

    def snapshots(self, since_ms: int, limit: int) -> list[Snapshot]:
        return records(Snapshot, self._db.rows(_SNAPSHOTS, (since_ms, limit)))

    def living(self) -> list[LivingNode]:
        return [
            LivingNode(name=name, life=life, crews=tuple(crews), workers=tuple(workers), without=tuple(without))
            for name, life, crews, workers, without in self._db.rows(_FLEET["living"])
        ]

    def requests(self, holder: Holder) -> list[NodeRequest]:
        rows = self._db.rows(_FLEET["asked"], (self._db.now, holder.life, LONGEST_REQUEST_MS))
        return records(NodeRequest, rows)

    def replies(self, ids: Sequence[str]) -> list[NodeReply]:
        return records(NodeReply, self._db.rows(_FLEET["replies"], (list(ids),)))


def _restart_note(
    node: str, component: str, now: int, written: int, fingerprint: str, charged: str, streak: int, rested: int | None,
    restarts: int, total: int,
) -> RestartNote:  # fmt: skip
    # The times were written together, so the clock may have been set since only between them and now.
    since = max(0, now - written)
    return RestartNote(
        node=node,
        component=component,
        fingerprint=fingerprint,
        charged_age_ms=tuple(since + written - at for at in json.loads(charged)),
        streak=streak,
        rested_age_ms=None if rested is None else since + written - rested,
        restarts=restarts,
        restarts_total=total,
    )


class PostgresAccessReading:
    """Implements `chargehand.store.AccessReading`."""

    def __init__(self, db: session.Session) -> None:
        self._db = db

    def api_keys(self) -> list[ApiKey]:
        return records(ApiKey, self._db.rows(_KEYS))

    def sessions(self) -> list[Session]:
        return records(Session, self._db.rows(_SESSIONS, (self._db.now,)))

    def operations(self, which: OperationFilter) -> list[Operation]:
        condition, bindings = where(
            {
                "who = ?": clean(which.who), "verb = ?": clean(which.verb), "target = ?": clean(which.target),
                "id < ?::bigint": which.before,
            }
        )  # fmt: skip
        sql = f"{_OPERATIONS} WHERE {condition} ORDER BY id DESC LIMIT ?"
        return records(Operation, self._db.rows(numbered(sql), (*bindings, which.limit)))
