-- Statements that end claims and jobs.

-- name: settle
-- One statement for every outcome. `IS NOT DISTINCT FROM` and not `=`: with the latter the planner may walk the index of
-- everything that runs. By seq and not by ctid: if the row was written to while FOR UPDATE waited, its new version has
-- another ctid, which this statement does not see. A job with a cancel request is cancelled where it would be queued again.
WITH e AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::json) AS e(
    seq bigint, claim bigint, state text, delay_ms bigint, result text, error text, reason text, failures int,
    crashes int, interruptions int, failed_in text, worker text, pid int, duration_ms bigint, outcome text)
  ORDER BY seq),  -- as everybody locks these rows
h AS MATERIALIZED (
  SELECT e.seq, e.claim, e.delay_ms, e.result, e.error, e.failures, e.worker, e.pid, e.duration_ms, e.outcome,
    t.queue, t.flow, t.started_ms, t.run_at_ms, t.cancel_ms, t.retried_ms, t.progress,
    t.attempts + coalesce(e.failures, 0) AS attempts, t.crashes + coalesce(e.crashes, 0) AS crashes,
    t.interruptions + coalesce(e.interruptions, 0) AS interruptions, coalesce(e.failed_in, t.failed_in) AS failed_in,
    CASE WHEN e.state = 'queued' AND t.cancel_ms IS NOT NULL THEN 'cancelled' ELSE e.state END AS becomes,
    CASE WHEN e.state = 'queued' AND t.cancel_ms IS NOT NULL THEN 'cancelled' ELSE e.reason END AS reason
  FROM e CROSS JOIN LATERAL (
    SELECT * FROM chargehand_live WHERE seq = e.seq AND claim IS NOT DISTINCT FROM e.claim FOR UPDATE) AS t),
gone AS (
  DELETE FROM chargehand_live WHERE seq = ANY (ARRAY(SELECT seq FROM h WHERE becomes <> 'queued'))),
back AS (
  UPDATE chargehand_live t SET claim = NULL, incarnation = NULL, node = NULL, worker = NULL, ahead = NULL,
    progress = NULL, error = h.error, failed_in = h.failed_in, attempts = h.attempts, crashes = h.crashes,
    interruptions = h.interruptions, waits = CASE WHEN h.delay_ms > 0 THEN 'time' END,
    run_at_ms = CASE WHEN h.delay_ms > 0 THEN {now} + h.delay_ms ELSE t.run_at_ms END
  FROM h WHERE t.seq = h.seq AND h.becomes = 'queued'),
fin AS (
  INSERT INTO chargehand_end (seq, claim, finished_ms, started_ms, run_at_ms, duration_ms, cancel_ms, retried_ms,
    attempts, crashes, interruptions, pid, queue, flow, state, node, worker, reason, failed_in, progress, result, error)
  SELECT seq, claim, {now}, started_ms, run_at_ms, duration_ms, cancel_ms, retried_ms, attempts, crashes, interruptions,
    pid, queue, flow, becomes, $3, worker, reason, failed_in, progress, result, error
  FROM h WHERE becomes <> 'queued'),
att AS (
  INSERT INTO chargehand_attempt (job, claim, started_ms, duration_ms, pid, node, worker, outcome, error)
  SELECT seq, claim, {now} - duration_ms, duration_ms, pid, $3, worker, outcome, error
  FROM h WHERE outcome IS NOT NULL AND (becomes <> 'done' OR outcome <> 'done') ON CONFLICT DO NOTHING)
SELECT seq, claim, becomes, flow FROM h

-- name: holds
SELECT 1 FROM chargehand_live WHERE seq = $1::bigint AND claim IS NOT DISTINCT FROM $2::bigint

-- name: before
-- Of outcomes that were sent in a turn whose commit was not acknowledged: those that were accepted then.
SELECT e.seq, e.claim FROM json_to_recordset($1::json) AS e(seq bigint, claim bigint, outcome text)
WHERE (SELECT a.outcome FROM chargehand_attempt a WHERE a.job = e.seq AND a.claim = e.claim) = e.outcome
  OR e.outcome = 'done' AND (
    SELECT x.state FROM chargehand_end x WHERE x.seq = e.seq AND x.claim IS NOT DISTINCT FROM e.claim) = 'done'

-- name: recorded
-- Of these claims, those that have ended.
SELECT e.seq, e.claim FROM json_to_recordset($1::json) AS e(seq bigint, claim bigint)
WHERE (SELECT a.nr FROM chargehand_attempt a WHERE a.job = e.seq AND a.claim = e.claim) IS NOT NULL
  OR (SELECT x.seq FROM chargehand_end x WHERE x.seq = e.seq AND x.claim IS NOT DISTINCT FROM e.claim) IS NOT NULL

-- name: note
-- Leaves out rows that others have locked: a worker that settles its job itself and hangs before the commit must not hold
-- up the turns of its node.
WITH h AS MATERIALIZED (
  SELECT e.* FROM json_to_recordset($2::json) AS e(seq bigint, claim bigint, worker text, age_ms bigint, progress text)
    CROSS JOIN LATERAL (
      SELECT FROM chargehand_live l WHERE l.seq = e.seq AND l.claim IS NOT DISTINCT FROM e.claim
      FOR UPDATE SKIP LOCKED) AS t)
UPDATE chargehand_live t SET worker = h.worker, started_ms = {now} - h.age_ms, progress = coalesce(h.progress, t.progress)
FROM h WHERE t.seq = h.seq

-- name: people_lock
SELECT pg_advisory_xact_lock(hashtextextended('chargehand people ' || current_schema(), 0))

-- name: cancel
WITH j AS MATERIALIZED (
  SELECT e.nr, j.id, j.seq FROM unnest($2::text[]) WITH ORDINALITY AS e(id, nr) JOIN chargehand_job j ON j.id = e.id
  ORDER BY j.seq),  -- as everybody locks these rows
h AS MATERIALIZED (
  SELECT j.nr, j.id, t.*
  FROM j CROSS JOIN LATERAL (SELECT * FROM chargehand_live l WHERE l.seq = j.seq FOR UPDATE) AS t),
gone AS (DELETE FROM chargehand_live WHERE seq = ANY (ARRAY(SELECT seq FROM h WHERE claim IS NULL))),
fin AS (
  INSERT INTO chargehand_end (seq, finished_ms, started_ms, run_at_ms, cancel_ms, retried_ms, attempts, crashes,
    interruptions, queue, flow, state, reason, failed_in, progress, error)
  SELECT seq, {now}, started_ms, run_at_ms, cancel_ms, retried_ms, attempts, crashes, interruptions, queue, flow,
    'cancelled', 'cancelled', failed_in, progress, error
  FROM h WHERE claim IS NULL),
marked AS (
  UPDATE chargehand_live t SET cancel_ms = coalesce(t.cancel_ms, {now}) FROM h
  WHERE t.seq = h.seq AND h.claim IS NOT NULL)
SELECT id, claim IS NULL, coalesce(claim, 0), queue, seq, flow FROM h ORDER BY nr

-- name: lock_of
-- The lock of the limited queues of these jobs; see `lock`.
SELECT queue FROM chargehand_limit WHERE queue IN (SELECT queue FROM chargehand_job WHERE id = ANY ($1::text[]))
ORDER BY queue FOR UPDATE

-- name: held
SELECT t.seq, t.queue, t.node, t.incarnation, t.worker, greatest(0, {now} - t.started_ms)
FROM chargehand_job j JOIN chargehand_live t ON t.seq = j.seq WHERE j.id = $2 AND t.claim = $3::bigint FOR UPDATE OF t

-- name: lock_with_followers
-- Locks jobs, and those that fail with them. Jobs that wait for others come last: an outcome has its own job locked while
-- it looks at such ones. (OFFSET 0: see `bad`.)
WITH RECURSIVE n(seq) AS (
  SELECT seq FROM chargehand_job WHERE id = ANY ($1::text[])
  UNION
  SELECT f.job FROM n CROSS JOIN LATERAL (
    SELECT g.job FROM chargehand_edge g WHERE g.predecessor = n.seq AND g.open AND g.strict OFFSET 0) AS f)
SELECT seq FROM chargehand_live WHERE seq IN (SELECT seq FROM n) ORDER BY waits IS NOT DISTINCT FROM 'jobs', seq FOR UPDATE

-- name: expire
-- A job that was claimed, and given back before a worker began it, may expire.
WITH h AS MATERIALIZED (
  SELECT * FROM chargehand_live
  WHERE expires_at_ms <= {now} AND claim IS NULL AND attempts + crashes + interruptions = 0
  ORDER BY expires_at_ms LIMIT $2::bigint FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM chargehand_live WHERE seq = ANY (ARRAY(SELECT seq FROM h))),
fin AS (
  INSERT INTO chargehand_end (seq, finished_ms, run_at_ms, retried_ms, attempts, crashes, interruptions, queue, flow, state,
    reason)
  SELECT seq, {now}, run_at_ms, retried_ms, attempts, crashes, interruptions, queue, flow, 'cancelled', 'expired' FROM h)
SELECT seq, flow FROM h

-- name: keep
-- Checkpoints of jobs whose claims hold.
INSERT INTO chargehand_kept (job, state)
SELECT seq, kept FROM json_to_recordset($1::json) AS e(seq bigint, claim bigint, kept text)
WHERE kept IS NOT NULL
  AND EXISTS (SELECT FROM chargehand_live t WHERE t.seq = e.seq AND t.claim IS NOT DISTINCT FROM e.claim)
ON CONFLICT (job) DO UPDATE SET state = excluded.state

-- name: bad
-- Those of these jobs ($1) that have failed or were cancelled, and all that failed because of them. The rows are locked:
-- a job may be about to be deleted. (OFFSET 0: each level of a long chain uses the index, and reads no whole table.)
WITH RECURSIVE n(seq) AS (
  SELECT seq FROM chargehand_end WHERE seq = ANY ($1::bigint[]) AND state IN ('failed', 'cancelled')
  UNION
  SELECT f.job FROM n CROSS JOIN LATERAL (
    SELECT g.job FROM chargehand_edge g WHERE g.predecessor = n.seq AND g.strict
      AND (SELECT x.state = 'failed' AND x.reason = 'predecessor' FROM chargehand_end x WHERE x.seq = g.job) OFFSET 0) AS f)
SELECT j.seq, j.id, j.queue, j.key, x.flow
FROM chargehand_job j JOIN chargehand_end x ON x.seq = j.seq
WHERE j.seq IN (SELECT seq FROM n) AND x.state IN ('failed', 'cancelled') ORDER BY j.seq FOR UPDATE OF x

-- name: numbers_of
SELECT id, seq FROM chargehand_job WHERE id = ANY ($1::text[])

-- name: key_holders
-- The jobs that have these keys; null: none.
SELECT (SELECT j.id FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq
  WHERE t.queue = e.queue AND t.key = {lookup e.key})
FROM ROWS FROM (json_to_recordset($1::json) AS (queue text, key text)) WITH ORDINALITY AS e(queue, key, nr)
ORDER BY nr

-- name: needs
-- The predecessors of these jobs without which they fail, and that did not end well; 0: the job itself. What never existed
-- counts as what was deleted.
SELECT g.job, g.predecessor FROM chargehand_edge g
WHERE g.job = ANY ($1::bigint[]) AND g.strict
  AND (g.nr = -3 OR (SELECT x.state FROM chargehand_end x WHERE x.seq = g.predecessor) <> 'done')

-- name: revive
-- Counters begin anew, the checkpoint stays. A job that a person names ($3) does not wait for its time. One with a share
-- takes its turn as a new one.
WITH again AS (
  SELECT seq, queue, rank, {lookup share} AS share FROM chargehand_job WHERE seq = ANY ($2::bigint[])),
made AS (
  INSERT INTO chargehand_live (seq, place, rank, queue, key, limit_key, run_at_ms, retried_ms, started_ms, flow, share,
    waits)
  SELECT j.seq, CASE WHEN f.arrival IS FALSE AND (j.parent IS NOT NULL OR EXISTS (
      SELECT FROM chargehand_edge g WHERE g.job = j.seq AND g.nr >= 0)) THEN coalesce(f.place, p.own) ELSE p.own END,
    j.rank, j.queue, {lookup j.key}, {lookup j.limit_key},
    CASE WHEN j.seq = ANY ($3::bigint[]) THEN {now} ELSE greatest(x.run_at_ms, {now}) END, {now}, x.started_ms, j.flow,
    p.share, CASE WHEN j.sequence IS NOT NULL THEN 'sequence'
      WHEN x.run_at_ms > {now} AND j.seq <> ALL ($3::bigint[]) THEN 'time' END
  FROM {placed again} AS p JOIN chargehand_job j ON j.seq = p.seq JOIN chargehand_end x ON x.seq = j.seq
    LEFT JOIN chargehand_flow f ON f.id = j.flow
  ORDER BY j.seq
  ON CONFLICT DO NOTHING RETURNING seq),
gone AS (DELETE FROM chargehand_end WHERE seq IN (SELECT seq FROM made))
SELECT seq FROM made

-- name: lock_needed
-- Locks what jobs that were queued again wait for, as `lock_predecessors` does later. An outcome locks its job, and then the
-- edges to it: whoever locked these edges first would wait for the outcome, and the outcome for them.
SELECT seq FROM chargehand_live
WHERE seq IN (SELECT predecessor FROM chargehand_edge WHERE job = ANY ($1::bigint[]) AND nr >= -1)
ORDER BY waits IS NOT DISTINCT FROM 'jobs', seq FOR KEY SHARE

-- name: wait_again
-- Jobs that were queued again wait for those of their predecessors that have not ended, and for what others have spawned:
-- these are looked at. In a sequence, they wait again for what they waited for when they ended, and `follow_sequence` lets
-- them wait for each other and for the last one.
WITH g AS (
  UPDATE chargehand_edge g SET open = true, due = true
  WHERE job = ANY ($1::bigint[]) AND (nr >= 0 OR nr = -1 AND open AND predecessor <> ALL ($1::bigint[]))
    AND ((SELECT t.seq FROM chargehand_live t WHERE t.seq = g.predecessor) IS NOT NULL
      OR nr >= 0 AND (SELECT x.state FROM chargehand_end x WHERE x.seq = g.predecessor) = 'done')
  RETURNING job),
old AS (
  DELETE FROM chargehand_edge g WHERE job = ANY ($1::bigint[]) AND nr = -1 AND (predecessor = ANY ($1::bigint[])
    OR NOT open OR (SELECT t.seq FROM chargehand_live t WHERE t.seq = g.predecessor) IS NULL))
UPDATE chargehand_live SET waits = 'jobs' WHERE seq IN (SELECT job FROM g) AND waits IS DISTINCT FROM 'sequence'

-- name: not_revived
UPDATE chargehand_end SET error = $2 WHERE seq = $1::bigint

-- name: sequences_of
SELECT id, queue, sequence FROM chargehand_job WHERE seq = ANY ($1::bigint[]) AND sequence IS NOT NULL ORDER BY seq

-- name: delete
-- Deletes those of these jobs that have ended. `$2`: also those that are predecessors of a job that lives.
WITH RECURSIVE gone AS (
  DELETE FROM chargehand_end x WHERE seq = ANY ($1::bigint[]) AND ($2::boolean OR (
    SELECT g.job FROM chargehand_edge g WHERE g.predecessor = x.seq AND g.nr >= 0
      AND (SELECT t.seq FROM chargehand_live t WHERE t.seq = g.job) IS NOT NULL LIMIT 1) IS NULL)
  RETURNING seq, flow),
jobs AS (DELETE FROM chargehand_job WHERE seq IN (SELECT seq FROM gone)),
attempts AS (DELETE FROM chargehand_attempt WHERE job IN (SELECT seq FROM gone)),
tags AS (DELETE FROM chargehand_tag WHERE job IN (SELECT seq FROM gone)),
aliases AS (DELETE FROM chargehand_alias WHERE job IN (SELECT seq FROM gone)),
kept AS (DELETE FROM chargehand_kept WHERE job IN (SELECT seq FROM gone)),
own_edges AS (DELETE FROM chargehand_edge WHERE job IN (SELECT seq FROM gone)),
edges AS (DELETE FROM chargehand_edge WHERE predecessor IN (SELECT seq FROM gone)),
back(last, seq) AS (  -- what jobs that ended before they were started waited for in their sequences
  SELECT job, predecessor FROM chargehand_edge WHERE job IN (SELECT seq FROM gone) AND nr = -1 AND open
  UNION
  SELECT back.last, g.predecessor FROM back JOIN chargehand_edge g ON g.job = back.seq
  WHERE g.nr = -1 AND g.open AND back.seq IN (SELECT seq FROM gone)),
lasts AS MATERIALIZED (
  SELECT j.seq, j.queue, {lookup j.sequence} AS sequence,
    (SELECT max(b.seq) FROM back b WHERE b.last = j.seq AND b.seq NOT IN (SELECT seq FROM gone)) AS before
  FROM chargehand_job j WHERE j.seq IN (SELECT seq FROM gone) AND j.sequence IS NOT NULL),
passed_on AS (
  UPDATE chargehand_sequence s SET job = l.before FROM lasts l
  WHERE s.queue = l.queue AND s.sequence = l.sequence AND s.job = l.seq AND l.before IS NOT NULL),
sequences AS (
  DELETE FROM chargehand_sequence s USING lasts l
  WHERE s.queue = l.queue AND s.sequence = l.sequence AND s.job = l.seq AND l.before IS NULL)
SELECT j.id, g.flow FROM gone g JOIN chargehand_job j ON j.seq = g.seq ORDER BY g.seq

-- name: recurring_known
SELECT name, schedule, next_run_ms, last_job FROM chargehand_recurring ORDER BY name COLLATE "C" FOR UPDATE

-- name: recurring_lock
-- Nodes that start at once take turns.
SELECT pg_advisory_xact_lock(hashtextextended('chargehand recurring ' || current_schema(), 0))

-- name: recurring_withdraw
UPDATE chargehand_recurring SET nodes = array_remove(nodes, $1::text)

-- name: recurring_add
INSERT INTO chargehand_recurring (name, schedule, job, next_run_ms, last_job, nodes)
VALUES ($1, $2, $3, $4::bigint, $5, ARRAY[$6::text])
ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, job = excluded.job, next_run_ms = excluded.next_run_ms,
  nodes = chargehand_recurring.nodes || excluded.nodes

-- name: recurring_clear
DELETE FROM chargehand_recurring WHERE NOT nodes && (ARRAY(SELECT name FROM chargehand_node) || $1::text)

-- name: move_on
UPDATE chargehand_recurring SET next_run_ms = $3::bigint WHERE name = $1 AND next_run_ms = $2::bigint RETURNING name

-- name: fired
WITH last AS (UPDATE chargehand_recurring SET last_job = $2 WHERE name = $1)
INSERT INTO chargehand_recurrence (name, runs) VALUES ($1, $3) ON CONFLICT (name) DO UPDATE SET runs = excluded.runs

-- name: recurring_paused
SELECT name FROM chargehand_recurrence WHERE name = $1 AND paused_ms IS NOT NULL

-- name: recurring_runs
-- Those who fire, and those who run it besides, take turns.
SELECT (SELECT runs FROM chargehand_recurrence s WHERE s.name = r.name)
FROM chargehand_recurring r WHERE r.name = $1 FOR UPDATE OF r

-- name: recurring_pause
INSERT INTO chargehand_recurrence (name, paused_ms, paused_by, pause_reason)
SELECT name, {now}, $3, $4 FROM chargehand_recurring WHERE name = $2
ON CONFLICT (name) DO UPDATE SET paused_ms = excluded.paused_ms, paused_by = excluded.paused_by,
  pause_reason = excluded.pause_reason
RETURNING name

-- name: recurring_resume
UPDATE chargehand_recurrence SET paused_ms = NULL, paused_by = NULL, pause_reason = NULL
WHERE name = $1 AND paused_ms IS NOT NULL RETURNING name

-- name: ends_in_future
-- The delay of a retry counts from the end of its last attempt; an end in the future is that of a clock that was ahead.
SELECT t.seq, a.claim, a.ended_ms - {now}
FROM chargehand_live t CROSS JOIN LATERAL (
  SELECT claim, started_ms + duration_ms AS ended_ms FROM chargehand_attempt WHERE job = t.seq
  ORDER BY nr DESC LIMIT 1) AS a
WHERE t.waits = 'time' AND t.started_ms IS NOT NULL AND a.ended_ms > {now} + $2::bigint

-- name: retry_earlier
UPDATE chargehand_live SET run_at_ms = run_at_ms - $2::bigint WHERE seq = $1::bigint

-- name: end_now
UPDATE chargehand_attempt SET started_ms = started_ms - $3::bigint WHERE job = $1::bigint AND claim = $2::bigint

-- name: pause_earlier
UPDATE chargehand_pause SET since_ms = {now}, until_ms = until_ms - (since_ms - {now}) WHERE since_ms > {now}
