-- Statements of the store as a whole: its clock, its schema, pruning.

-- name: now
SELECT {now}

-- name: snapshot
SELECT pg_current_snapshot()::text, pg_current_xact_id_if_assigned()::text

-- name: terminate
-- Waits until the session is gone, so that it can commit nothing any more.
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = $1::int AND usename = current_user

-- name: channel
-- The number of a table: two stores in one database do not wake each other.
SELECT 'chargehand_' || to_regclass('chargehand_live')::oid::text

-- name: notify
-- A transaction of its own. It returns its number, and the snapshot before it, as `snapshot` does.
SELECT pg_current_snapshot()::text, pg_current_xact_id()::text,
  pg_notify('chargehand_' || to_regclass('chargehand_live')::oid::text, $1)

-- name: look
-- Those of the queues ($2) that have jobs which are due, or will be within so many ms ($3), or may be when edges were looked
-- at.
SELECT queue FROM unnest($2::text[]) AS e(queue)
WHERE (SELECT seq FROM chargehand_live t WHERE t.queue = e.queue AND claim IS NULL AND waits IS NULL
    ORDER BY rank, place, seq LIMIT 1) IS NOT NULL
  OR (SELECT run_at_ms FROM chargehand_live t WHERE t.queue = e.queue AND waits = 'time' ORDER BY run_at_ms LIMIT 1)
    <= {now} + $3::bigint
  OR (SELECT g.job FROM chargehand_edge g
    WHERE g.due AND (SELECT t.queue FROM chargehand_live t WHERE t.seq = g.job) = e.queue LIMIT 1) IS NOT NULL

-- name: settings
SELECT set_config(name, value, $2::boolean) FROM json_each_text($1::json) AS e(name, value)

-- name: server
SELECT pg_backend_pid(), current_setting('server_version_num')::int, pg_is_in_recovery(), current_schema()::text,
  current_setting('search_path')

-- name: identity
-- Identifies the server and the history of its data: a promotion begins a new timeline, the first part of the file name.
SELECT (SELECT system_identifier::text FROM pg_control_system()), pg_walfile_name(pg_current_wal_lsn()),
  extract(epoch FROM pg_postmaster_start_time())::text

-- name: database
-- Identifies the database as long as its server runs: a copy of it, on another server, has another start.
SELECT extract(epoch FROM pg_postmaster_start_time())::text || ' ' || oid::text
FROM pg_database WHERE datname = current_database()

-- name: schema_of_tables
SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('chargehand_job')

-- name: tables
SELECT to_regclass('chargehand_schema') IS NOT NULL, to_regclass('chargehand_moving') IS NOT NULL

-- name: usable
SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1

-- name: make_tables
CREATE TABLE IF NOT EXISTS chargehand_schema (
  version int PRIMARY KEY, checksum text NOT NULL, applied_ms bigint NOT NULL,
  oldest int NOT NULL  -- the oldest schema version whose code may use the tables
)

-- name: version
SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM chargehand_schema

-- name: lock_schema
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))

-- name: applied
INSERT INTO chargehand_schema (version, checksum, applied_ms, oldest) VALUES ($2::int, $3, {now}, $4::int)

-- name: probe
INSERT INTO chargehand_probe (one, at_ms) VALUES (1, {now}) ON CONFLICT (one) DO UPDATE SET at_ms = excluded.at_ms

-- name: next_queue
SELECT queue FROM chargehand_end WHERE queue > $1 ORDER BY queue LIMIT 1

-- name: older
SELECT finished_ms, seq FROM chargehand_end
WHERE queue = $1 AND state = $2 AND (finished_ms, seq) < ($3::bigint, $4::bigint)
ORDER BY finished_ms DESC, seq DESC LIMIT 1 OFFSET $5::bigint

-- name: oldest
-- The oldest jobs after a position, and whether each can be deleted: no job that lives has it as predecessor, and its flow
-- has ended.
SELECT x.finished_ms, x.seq, NOT EXISTS (
    SELECT FROM chargehand_edge g JOIN chargehand_live t ON t.seq = g.job WHERE g.predecessor = x.seq AND g.nr >= 0)
  AND (x.flow IS NULL OR EXISTS (SELECT FROM chargehand_flow f WHERE f.id = x.flow AND f.ended_ms IS NOT NULL)
    OR NOT EXISTS (SELECT FROM chargehand_flow f WHERE f.id = x.flow))
FROM chargehand_end x
WHERE queue = $1 AND state = $2 AND (finished_ms, seq) <= ($3::bigint, $4::bigint) AND (finished_ms, seq) > ($5::bigint, $6::bigint)
ORDER BY finished_ms, seq LIMIT $7::bigint

-- name: prune_flows
-- Flows that have lost their last job, and those that had none and are too old.
DELETE FROM chargehand_flow f
WHERE ended_ms IS NOT NULL AND seq = ANY (ARRAY(
    SELECT seq FROM chargehand_flow WHERE id = ANY ($2::text[])
    UNION ALL
    (SELECT seq FROM chargehand_flow WHERE place IS NULL AND ended_ms < {now} - $3::bigint
      ORDER BY ended_ms LIMIT $4::bigint)))
  AND NOT EXISTS (SELECT FROM chargehand_end x WHERE x.flow = f.id)
  AND NOT EXISTS (SELECT FROM chargehand_live t WHERE t.flow = f.id)

-- name: prune_once
DELETE FROM chargehand_once WHERE (queue, key) IN (
  SELECT queue, key FROM chargehand_once WHERE until_ms <= {now} ORDER BY until_ms LIMIT $2::bigint)

-- name: prune_crashes
-- The newest report to delete is the first beyond the count ($3), or else the newest that is too old ($2).
DELETE FROM chargehand_crash WHERE seq IN (
  SELECT seq FROM chargehand_crash
  WHERE at_ms < {now} - $2::bigint OR (at_ms, seq) <= (
    SELECT at_ms, seq FROM chargehand_crash ORDER BY at_ms DESC, seq DESC LIMIT 1 OFFSET $3::bigint)
  ORDER BY at_ms, seq LIMIT $4::bigint)

-- name: prune_history
DELETE FROM chargehand_history WHERE timestamp_ms IN (
  SELECT timestamp_ms FROM chargehand_history WHERE timestamp_ms < {now} - $2::bigint
  ORDER BY timestamp_ms LIMIT $3::bigint)

-- name: prune_operations
DELETE FROM chargehand_operation WHERE id IN (
  SELECT id FROM chargehand_operation WHERE at_ms < {now} - $2::bigint ORDER BY at_ms LIMIT $3::bigint)

-- name: prune_remembered
DELETE FROM chargehand_remembered WHERE (caller, key) IN (
  SELECT caller, key FROM chargehand_remembered WHERE at_ms <= {now} - $2::bigint ORDER BY at_ms LIMIT $3::bigint)

-- name: prune_sessions
DELETE FROM chargehand_session WHERE digest IN (
  SELECT digest FROM chargehand_session WHERE expires_ms <= {now} LIMIT $2::bigint)

-- name: prune_health
DELETE FROM chargehand_health WHERE node NOT IN (SELECT name FROM chargehand_node)
  AND coalesce(last_heartbeat_ms, created_at_ms) < {now} - $2::bigint
