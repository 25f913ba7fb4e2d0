-- Statements about nodes, crews and workers.

-- name: lock_crews
-- Of two nodes that register at once, the second sees the limits that the first declares.
SELECT pg_advisory_xact_lock(hashtextextended('chargehand crews ' || current_schema(), 0))

-- name: about
SELECT about FROM chargehand_node WHERE name = $1

-- name: remove_nodes
DELETE FROM chargehand_node WHERE incarnation = ANY ($1::text[])

-- name: add_node
INSERT INTO chargehand_node (incarnation, name, started_ms, backend, about, schema)
VALUES ($3, $2, {now}, $4::int, $5, $6::int)
ON CONFLICT DO NOTHING RETURNING incarnation

-- name: beat
-- Returns, too, whether edges must be looked at.
UPDATE chargehand_node SET beat = beat + 1, backend = $2::int WHERE incarnation = $1
RETURNING beat, EXISTS (SELECT FROM chargehand_edge WHERE due)

-- name: others
SELECT incarnation, name, beat, backend IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = backend),
  about
FROM chargehand_node WHERE incarnation <> $1

-- name: older
-- The nodes whose code knows only schemas before this version; at last, whether their sessions are known.
SELECT incarnation, name, beat, backend IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = backend),
  about, backend IS NOT NULL
FROM chargehand_node WHERE schema < $1::int

-- name: expire
-- A beat that is under way wins, by the lock of the row: then its number is another one.
DELETE FROM chargehand_node n USING json_to_recordset($1::json) AS e(incarnation text, beat bigint)
WHERE n.incarnation = e.incarnation AND n.beat = e.beat RETURNING n.name, n.incarnation, n.about

-- name: left_by
-- From now on it counts for how long these nodes have been gone.
UPDATE chargehand_crew SET registered_ms = {now} WHERE node = ANY ($2::text[])

-- name: adopt
UPDATE chargehand_live SET incarnation = $2 WHERE claim IS NOT NULL AND incarnation = ANY ($1::text[]) RETURNING seq, claim

-- name: stopping
UPDATE chargehand_node SET about = (about::jsonb || '{"asked": true}')::text WHERE incarnation = $1

-- name: of_others
-- The queues that are served by workers of other nodes that live, and the nodes that left their health rows behind.
SELECT ARRAY(SELECT DISTINCT c.queue FROM chargehand_node n JOIN chargehand_crew c ON c.node = n.name
    JOIN chargehand_health h ON h.node = c.node AND h.metadata::json ->> 'crew' = c.name
    WHERE n.incarnation <> $2 AND (h.metadata::json ->> 'will_work')::boolean),
  ARRAY(SELECT DISTINCT h.node FROM chargehand_health h
    WHERE NOT EXISTS (SELECT FROM chargehand_node n WHERE n.name = h.node) ORDER BY h.node),
  {now}

-- name: scaled
SELECT name, workers, scaled FROM chargehand_crew WHERE node = $1 AND scaled IS NOT NULL

-- name: clear_crews
DELETE FROM chargehand_crew WHERE node = $1

-- name: add_crews
INSERT INTO chargehand_crew (node, name, queue, handler, workers, max_attempts, timeout_ms, priority, allowed,
  allowed_per_key, rate, rate_per_key, hide, scaled, registered_ms)
SELECT $2, name, queue, handler, workers, max_attempts, timeout_ms, priority, allowed, allowed_per_key, rate,
  rate_per_key, hide, scaled, {now}
FROM json_to_recordset($3::json) AS e(name text, queue text, handler text, workers int, max_attempts int,
  timeout_ms bigint, priority int, allowed int, allowed_per_key int, rate text, rate_per_key text,
  hide text, scaled int)

-- name: scale
UPDATE chargehand_crew SET scaled = $2::int WHERE name = $1 AND node = $3

-- name: pause_of
SELECT scope, who, reason, since_ms, until_ms, until_ms - {now} FROM chargehand_pause
WHERE scope = $2 AND (until_ms IS NULL OR until_ms > {now}) FOR UPDATE

-- name: pause
INSERT INTO chargehand_pause (scope, who, reason, since_ms, until_ms) VALUES ($2, $3, $4, {now}, {now} + $5::bigint)
ON CONFLICT (scope) DO UPDATE
SET who = excluded.who, reason = excluded.reason, since_ms = excluded.since_ms, until_ms = excluded.until_ms

-- name: resume
DELETE FROM chargehand_pause WHERE scope = $2 RETURNING until_ms IS NULL OR until_ms > {now}

-- name: first_seen
INSERT INTO chargehand_worker (node, component, created_ms)
SELECT $2, component, {now} FROM json_to_recordset($3::json) AS e(component text) ON CONFLICT DO NOTHING

-- name: health
INSERT INTO chargehand_health (node, component, status, flags, reason, pid, pid_start, incarnation, current_job,
  last_heartbeat_ms, restart_count, last_restart_ms, exit_code, signal, created_at_ms, metadata)
SELECT $2, e.component, status, flags, reason, pid, pid_start, incarnation, current_job, {now} - heartbeat_age_ms,
  restart_count, {now} - restart_age_ms, exit_code, signal, w.created_ms, metadata
FROM json_to_recordset($3::json) AS e(component text, status text, flags text, reason text, pid bigint,
  pid_start bigint, incarnation text, current_job text, heartbeat_age_ms bigint, restart_count int,
  restart_age_ms bigint, exit_code int, signal int, metadata text)
  JOIN chargehand_worker w ON w.node = $2 AND w.component = e.component
ON CONFLICT (node, component) DO UPDATE SET status = excluded.status, flags = excluded.flags, reason = excluded.reason,
  pid = excluded.pid, pid_start = excluded.pid_start, incarnation = excluded.incarnation,
  current_job = excluded.current_job, last_heartbeat_ms = excluded.last_heartbeat_ms,
  restart_count = excluded.restart_count, last_restart_ms = excluded.last_restart_ms, exit_code = excluded.exit_code,
  signal = excluded.signal, created_at_ms = excluded.created_at_ms, metadata = excluded.metadata

-- name: health_gone
DELETE FROM chargehand_health WHERE node = $1 AND component = ANY ($2::text[])

-- name: health_clear
DELETE FROM chargehand_health WHERE node = $1

-- name: crash
INSERT INTO chargehand_crash (id, node, component, crew, job, at_ms, incarnation, pid, reason, exit_code, signal, memory,
  uptime_ms, charged, follows, text, stacks, lines, frames)
SELECT id, $2, component, crew, job, {now} - age_ms, incarnation, pid, reason, exit_code, signal, memory, uptime_ms,
  charged, follows, text, stacks, lines, frames
FROM json_to_recordset($3::json) AS e(id text, component text, crew text, job text, age_ms bigint, incarnation text,
  pid bigint, reason text, exit_code int, signal int, memory bigint, uptime_ms bigint, charged boolean, follows text,
  text text, stacks text, lines text, frames text)
ON CONFLICT (id) DO NOTHING

-- name: give_up
INSERT INTO chargehand_given_up (node, component, crew, reason, fingerprint, at_ms)
SELECT $2, component, crew, reason, fingerprint, {now}
FROM json_to_recordset($3::json) AS e(component text, crew text, reason text, fingerprint text)
ON CONFLICT (node, component) DO UPDATE SET crew = excluded.crew, reason = excluded.reason,
  fingerprint = excluded.fingerprint, at_ms = excluded.at_ms

-- name: forgive_workers
DELETE FROM chargehand_given_up WHERE node = $1 AND component = ANY ($2::text[])

-- name: restarts
INSERT INTO chargehand_worker (node, component, created_ms, written_ms, fingerprint, charged, streak, rested_ms,
  restarts, restarts_total)
SELECT $2, component, {now}, {now}, fingerprint,
  coalesce((SELECT json_agg({now} - age::bigint ORDER BY nr)
    FROM json_array_elements_text(charged_age_ms) WITH ORDINALITY AS c(age, nr)), '[]'::json)::text,
  streak, {now} - rested_age_ms, restarts, restarts_total
FROM json_to_recordset($3::json) AS e(component text, fingerprint text, charged_age_ms json, streak int,
  rested_age_ms bigint, restarts int, restarts_total int)
ON CONFLICT (node, component) DO UPDATE SET written_ms = excluded.written_ms, fingerprint = excluded.fingerprint,
  charged = excluded.charged, streak = excluded.streak, rested_ms = excluded.rested_ms, restarts = excluded.restarts,
  restarts_total = excluded.restarts_total

-- name: snapshot
INSERT INTO chargehand_history (timestamp_ms, components)
SELECT {now}, coalesce(json_agg(json_build_object('component', component, 'status', status, 'flags', flags::json,
  'current_job', current_job, 'pid', pid, 'restart_count', restart_count) ORDER BY node, component), '[]'::json)::text
FROM chargehand_health
ON CONFLICT (timestamp_ms) DO UPDATE SET components = excluded.components

-- name: living
SELECT name, incarnation,
  ARRAY(SELECT c.name FROM chargehand_crew c WHERE c.node = n.name ORDER BY c.name COLLATE "C"),
  ARRAY(SELECT h.component FROM chargehand_health h WHERE h.node = n.name AND h.component LIKE 'worker:%'
    ORDER BY h.component COLLATE "C"),
  ARRAY(SELECT c.name FROM chargehand_crew c WHERE c.node = n.name AND c.workers = 0 ORDER BY c.name COLLATE "C")
FROM chargehand_node n ORDER BY name COLLATE "C"

-- name: ask
INSERT INTO chargehand_request (id, incarnation, kind, body, asked_ms)
SELECT id, life, kind, body, {now} FROM json_to_recordset($2::json) AS e(id text, life text, kind text, body text)
ON CONFLICT (incarnation, body) WHERE kind = 'WAKE' DO UPDATE SET id = excluded.id, asked_ms = excluded.asked_ms

-- name: asked
SELECT id, incarnation, kind, body FROM chargehand_request
WHERE incarnation = $2 AND answer IS NULL AND asked_ms > {now} - $3::bigint ORDER BY asked_ms, id

-- name: replies
SELECT id, answer, EXISTS (SELECT FROM chargehand_node n WHERE n.incarnation = r.incarnation)
FROM chargehand_request r WHERE id = ANY ($1::text[])

-- name: withdraw
DELETE FROM chargehand_request r WHERE id = ANY ($1::text[])
RETURNING id, answer, EXISTS (SELECT FROM chargehand_node n WHERE n.incarnation = r.incarnation)

-- name: answer
UPDATE chargehand_request SET answer = $2 WHERE id = $1

-- name: forget
DELETE FROM chargehand_request WHERE id = $1

-- name: prune_requests
DELETE FROM chargehand_request WHERE asked_ms < {now} - $2::bigint

-- name: prune_nodes
-- What nodes have left that have been gone for so long ($2). A node without crews counts by its workers.
WITH gone AS MATERIALIZED (
  SELECT node FROM (
    SELECT node, registered_ms AS at_ms FROM chargehand_crew
    UNION ALL SELECT node, coalesce(written_ms, created_ms) FROM chargehand_worker
    UNION ALL SELECT node, at_ms FROM chargehand_given_up) AS traces
  WHERE node NOT IN (SELECT name FROM chargehand_node)
  GROUP BY node HAVING max(at_ms) < {now} - $2::bigint),
crews AS (DELETE FROM chargehand_crew WHERE node IN (SELECT node FROM gone)),
workers AS (DELETE FROM chargehand_worker WHERE node IN (SELECT node FROM gone)),
marks AS (DELETE FROM chargehand_given_up WHERE node IN (SELECT node FROM gone)),
searches AS (
  DELETE FROM chargehand_search WHERE incarnation NOT IN (SELECT incarnation FROM chargehand_node))
UPDATE chargehand_recurring
SET nodes = ARRAY(SELECT name FROM unnest(nodes) AS name WHERE name NOT IN (SELECT node FROM gone))
WHERE nodes && ARRAY(SELECT node FROM gone)

-- name: lead
-- Nothing is written while the node keeps its crews.
WITH mine AS (SELECT crew FROM chargehand_search WHERE incarnation = $2 AND crew = ANY ($1::text[])),
taken AS (
  INSERT INTO chargehand_search AS s (crew, incarnation)
  SELECT crew, $2 FROM unnest($1::text[]) AS e(crew)
  WHERE EXISTS (SELECT FROM chargehand_node WHERE incarnation = $2)
    AND NOT EXISTS (SELECT FROM chargehand_search h JOIN chargehand_node n ON n.incarnation = h.incarnation
      WHERE h.crew = e.crew)
  ON CONFLICT (crew) DO UPDATE SET incarnation = excluded.incarnation
  WHERE NOT EXISTS (SELECT FROM chargehand_node n WHERE n.incarnation = s.incarnation)
  RETURNING crew)
SELECT crew FROM mine UNION SELECT crew FROM taken

-- name: follow
DELETE FROM chargehand_search WHERE incarnation = $2 AND crew = ANY ($1::text[])
