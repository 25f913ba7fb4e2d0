-- Statements of `chargehand doctor`: they write nothing, take no lock on a table, and need no rights of a superuser.
-- $1 is the schema of the store, where a statement has a parameter.

-- name: where
-- The user's search path, before the schema of the URL replaces it.
SELECT current_schema()::text

-- name: state
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
  current_setting('default_transaction_read_only')::boolean, current_user::text

-- name: time
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: settings
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum',
  'track_counts', 'autovacuum_max_workers', 'max_connections', 'superuser_reserved_connections', 'reserved_connections')

-- name: connections
SELECT (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database),
  (SELECT numbackends FROM pg_stat_database WHERE datname = current_database()),
  (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
  (SELECT count(*)::int FROM pg_stat_activity WHERE usename = current_user),
  (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user)

-- name: snapshots
-- What keeps the server from removing dead rows of this database, the oldest first. A vacuum does not.
SELECT 'session', pid, application_name, usename::text, state, upper(substring(query FROM '^\s*([A-Za-z]{1,20})')),
  extract(epoch FROM clock_timestamp() - xact_start)::float8, greatest(age(backend_xmin), age(backend_xid))
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND coalesce(backend_xmin, backend_xid) IS NOT NULL
  AND (datname = current_database() OR datname IS NULL) AND backend_type IS DISTINCT FROM 'autovacuum worker'
UNION ALL
SELECT 'prepared', NULL, gid, owner::text, NULL, NULL,
  extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'slot', active_pid, slot_name::text, NULL, NULL, NULL, NULL, age(xmin) FROM pg_replication_slots
WHERE xmin IS NOT NULL
ORDER BY 8 DESC NULLS LAST LIMIT 5

-- name: hidden
-- Sessions of which this user may not see what they do.
SELECT count(*)::int FROM pg_stat_activity
WHERE datname = current_database() AND NOT pg_has_role(usesysid, 'USAGE')
  AND NOT pg_has_role('pg_read_all_stats', 'USAGE')

-- name: vacuum
SELECT c.relname::text, s.n_live_tup, s.n_dead_tup,
  extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8,
  coalesce('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions), false),
  EXISTS (SELECT FROM pg_stat_progress_vacuum p WHERE p.relid = c.oid),
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE n.nspname = $1 AND c.relname = 'chargehand_live'

-- name: schema_rights
SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1

-- name: missing_rights
-- The numbers of jobs with further options are taken from their sequence before the jobs are inserted.
SELECT p.name || ' on ' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'USAGE']) AS p(name)
WHERE n.nspname = $1 AND starts_with(c.relname, 'chargehand_')
  AND CASE WHEN c.relkind = 'r' AND p.name <> 'USAGE' THEN NOT has_table_privilege(c.oid, p.name)
    WHEN c.relname = 'chargehand_job_seq_seq' AND p.name = 'USAGE' THEN NOT has_sequence_privilege(c.oid, 'USAGE, UPDATE') END
ORDER BY c.relname, p.name

-- name: locks
-- Locks on our tables that keep others from writing.
SELECT l.pid, a.application_name, a.usename::text, a.state,
  extract(epoch FROM clock_timestamp() - a.xact_start)::float8, c.relname::text
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND n.nspname = $1 AND c.relkind = 'r' AND starts_with(c.relname, 'chargehand_') AND l.pid <> pg_backend_pid()
ORDER BY 5 DESC NULLS LAST LIMIT 1

-- name: peers
SELECT n.name, n.about::json ->> 'version',
  n.backend IS NOT NULL AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = n.backend),
  (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - h.last_heartbeat_ms FROM chargehand_health h
   WHERE h.node = n.name AND h.component = 'app')
FROM chargehand_node n ORDER BY n.name

-- name: gone
SELECT h.node, NULL, false, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - h.last_heartbeat_ms
FROM chargehand_health h
WHERE h.component = 'app' AND NOT EXISTS (SELECT FROM chargehand_node n WHERE n.name = h.node) ORDER BY h.node

-- name: definitions
SELECT format('%s.%s %s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
  CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = $1 AND c.relkind = 'r' AND starts_with(c.relname, 'chargehand_') AND a.attnum > 0
  AND NOT a.attisdropped
ORDER BY c.relname, a.attnum

-- name: indexes
SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND starts_with(tablename, 'chargehand_')
ORDER BY tablename, indexname

-- name: last_done
SELECT max(finished_ms) FROM chargehand_end WHERE queue = $1 AND state = 'done'

-- name: failed_since
SELECT count(*) FROM chargehand_end WHERE queue = $1 AND state = 'failed' AND finished_ms > $2::bigint

-- name: last_error
SELECT error FROM chargehand_end WHERE queue = $1 AND state = 'failed' ORDER BY finished_ms DESC LIMIT 1

-- name: next_run
SELECT queue, min(run_at_ms) - {now} FROM chargehand_live WHERE waits = 'time' GROUP BY queue

-- name: poison
WITH suspected (id) AS (
  SELECT job FROM chargehand_crash WHERE job IS NOT NULL
  UNION SELECT j.id FROM (
    SELECT seq, reason FROM chargehand_end WHERE queue IN (SELECT queue FROM chargehand_crew) AND state = 'failed'
    ORDER BY finished_ms DESC LIMIT 1000) AS e JOIN chargehand_job j ON j.seq = e.seq WHERE e.reason = 'poison'),
known (id, queue, crashes, state, label, seq) AS (
  SELECT j.id, j.queue, coalesce(t.crashes, e.crashes, 0),
    coalesce(e.state, CASE WHEN t.claim IS NULL THEN 'queued' ELSE 'running' END), j.label, j.seq
  FROM suspected s JOIN chargehand_job j ON j.id = s.id
    LEFT JOIN chargehand_live t ON t.seq = j.seq LEFT JOIN chargehand_end e ON e.seq = j.seq)
SELECT id, queue, crashes, state, label FROM known WHERE crashes >= $1::int AND state IN ('queued', 'running', 'failed')
ORDER BY state = 'failed', seq DESC

-- name: flows
SELECT to_regclass('chargehand_flow') IS NOT NULL

-- name: rated
SELECT to_regclass('chargehand_start') IS NOT NULL
