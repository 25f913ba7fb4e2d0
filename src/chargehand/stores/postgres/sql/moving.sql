-- Statements that read and write all rows of a store, for a move.

-- name: attempts
-- Of the jobs $1 to $2. The attempt that ended well has no row of its own: the end of the job has all of it.
SELECT job, claim, node, worker, pid, started_ms, duration_ms, outcome, error FROM (
  SELECT job, nr, claim, node, worker, pid, started_ms, duration_ms, outcome, error FROM chargehand_attempt
  WHERE job BETWEEN $1::bigint AND $2::bigint
  UNION ALL
  SELECT seq, NULL, claim, node, worker, pid, finished_ms - duration_ms, duration_ms, 'done', NULL FROM chargehand_end e
  WHERE seq BETWEEN $1::bigint AND $2::bigint AND state = 'done' AND claim IS NOT NULL AND duration_ms IS NOT NULL
    AND NOT EXISTS (SELECT FROM chargehand_attempt a WHERE a.job = e.seq AND a.claim = e.claim)) AS every
ORDER BY job, nr NULLS LAST

-- name: add_attempts
-- In their order: the column nr has it.
INSERT INTO chargehand_attempt (job, claim, node, worker, pid, started_ms, duration_ms, outcome, error)
SELECT job, claim, node, worker, pid, started_ms, duration_ms, outcome, error
FROM json_populate_recordset(NULL::chargehand_attempt, $1::json) WITH ORDINALITY ORDER BY ordinality

-- name: add_live
INSERT INTO chargehand_live (seq, run_at_ms, started_ms, cancel_ms, retried_ms, place, rank, attempts, crashes,
  interruptions, waits, queue, key, limit_key, error, failed_in, flow, share, expires_at_ms)
SELECT seq, run_at_ms, started_ms, cancel_ms, retried_ms, coalesce(place, seq), rank, attempts, crashes, interruptions,
  waits, queue, {lookup key}, {lookup limit_key}, error, failed_in, flow, {lookup share}, expires_at_ms
FROM json_populate_recordset(NULL::chargehand_live, $1::json)

-- name: add_starts
INSERT INTO chargehand_start (queue, key, at_ms, jobs, total)
SELECT queue, {lookup key}, at_ms, jobs, total FROM json_populate_recordset(NULL::chargehand_start, $1::json)

-- name: node
SELECT node FROM chargehand_crew ORDER BY registered_ms DESC, node LIMIT 1

-- name: running
-- The nodes, their counters, and whether their sessions on the server exist: null behind a pooler.
SELECT name, incarnation, beat, CASE WHEN backend IS NOT NULL THEN EXISTS (
    SELECT FROM pg_stat_activity WHERE pid = backend AND datname = current_database() AND pid <> pg_backend_pid()
      AND coalesce(application_name, 'chargehand') LIKE 'chargehand%') END
FROM chargehand_node ORDER BY name

-- name: counter
-- The last number of the table $1 and its column $2.
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence($1, $2)::regclass), 0)

-- name: set_counter
SELECT setval(pg_get_serial_sequence($1, $2)::regclass, $3::bigint)

-- name: progress
SELECT source, part, after FROM chargehand_moving

-- name: begin
INSERT INTO chargehand_moving (source, part, after) VALUES ($1, $2, NULL)

-- name: note
UPDATE chargehand_moving SET part = $1, after = $2

-- name: finish
DROP TABLE chargehand_moving
