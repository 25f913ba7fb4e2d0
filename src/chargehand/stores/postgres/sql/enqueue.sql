-- Statements that add jobs. Jobs arrive as one JSON text: lists of values cost the client far more.

-- name: enqueue
-- A job with a parent is added only if that outcome was accepted: `chargehand_end` has the parent as done with the same claim.
WITH e AS MATERIALIZED (
  SELECT * FROM ROWS FROM (json_to_recordset($2::json) AS (
    id text, queue text, rank int, delay_ms bigint, run_at_ms bigint, max_attempts int, timeout_ms bigint, key text,
    limit_key text, item text, label text, tags text, payload text, parent bigint, claim bigint
  )) WITH ORDINALITY AS e(id, queue, rank, delay_ms, run_at_ms, max_attempts, timeout_ms, key, limit_key, item, label,
    tags, payload, parent, claim, nr)
  WHERE parent IS NULL
    OR EXISTS (SELECT FROM chargehand_end x WHERE x.seq = e.parent AND x.claim IS NOT DISTINCT FROM e.claim
      AND x.state = 'done')),
made AS (
  INSERT INTO chargehand_job (id, queue, rank, run_at_ms, max_attempts, timeout_ms, key, limit_key, item, label, tags,
    created_ms, payload)
  SELECT id, queue, rank, coalesce(run_at_ms, {now} + delay_ms), max_attempts, timeout_ms, key, limit_key, item, label,
    tags, {now}, payload
  FROM e ORDER BY nr
  ON CONFLICT (id) DO NOTHING RETURNING seq, id, queue, rank, key, limit_key, run_at_ms),
due AS (
  INSERT INTO chargehand_live (seq, place, queue, rank, key, limit_key, waits, run_at_ms)
  SELECT seq, seq, queue, rank, {lookup key}, {lookup limit_key},
    CASE WHEN run_at_ms > {now} THEN 'time' END, run_at_ms
  FROM made ORDER BY seq
  ON CONFLICT (queue, key) WHERE key IS NOT NULL DO NOTHING RETURNING seq)
SELECT id FROM made WHERE (seq IN (SELECT seq FROM due)) IS TRUE

-- name: tidy
-- Removes the jobs that `enqueue` wrote although their key is taken.
DELETE FROM chargehand_job j USING json_to_recordset($1::json) AS e(id text, key text)
WHERE j.id = e.id AND e.key IS NOT NULL
  AND NOT EXISTS (SELECT FROM chargehand_live t WHERE t.seq = j.seq)
  AND NOT EXISTS (SELECT FROM chargehand_end x WHERE x.seq = j.seq)

-- name: tag
INSERT INTO chargehand_tag (tag, job)
SELECT DISTINCT tag, j.seq
FROM json_to_recordset($1::json) AS e(id text) JOIN chargehand_job j ON j.id = e.id
  CROSS JOIN LATERAL json_array_elements_text(j.tags::json) AS tag
WHERE j.tags IS NOT NULL
ON CONFLICT DO NOTHING

-- name: alias
INSERT INTO chargehand_alias (id, job)
SELECT e.id, t.seq
FROM json_to_recordset($1::json) AS e(id text, queue text, key text, parent bigint, claim bigint)
  JOIN chargehand_live t ON t.queue = e.queue AND t.key = {lookup e.key}
WHERE e.key IS NOT NULL AND NOT EXISTS (SELECT FROM chargehand_job j WHERE j.id = e.id)
  AND (e.parent IS NULL
    OR EXISTS (SELECT FROM chargehand_end x WHERE x.seq = e.parent AND x.claim IS NOT DISTINCT FROM e.claim))
ON CONFLICT DO NOTHING

-- name: taken
-- The job that has the id, or the key; null if the holder of the key has ended meanwhile.
SELECT coalesce(
  (SELECT j.id FROM chargehand_job j WHERE j.id = e.id),
  (SELECT j.id FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq 
    WHERE t.queue = e.queue AND t.key = {lookup e.key}))
FROM ROWS FROM (json_to_recordset($1::json) AS (id text, queue text, key text))
  WITH ORDINALITY AS e(id, queue, key, nr)
ORDER BY nr

-- name: newest
-- Of each item its newest jobs, newest first.
SELECT e.nr, past.state, past.finished_ms, past.retried_ms
FROM ROWS FROM (json_array_elements_text($2::json)) WITH ORDINALITY AS e(item, nr)
  CROSS JOIN LATERAL (
    SELECT j.seq, coalesce(x.state, CASE WHEN t.claim IS NULL THEN 'queued' ELSE 'running' END) AS state,
      x.finished_ms, coalesce(x.retried_ms, t.retried_ms) AS retried_ms
    FROM chargehand_job j LEFT JOIN chargehand_live t ON t.seq = j.seq LEFT JOIN chargehand_end x ON x.seq = j.seq
    WHERE j.queue = $1 AND hashtextextended(j.item, 0) = hashtextextended(e.item, 0) AND j.item = e.item
    ORDER BY j.seq DESC LIMIT $3::bigint) AS past
ORDER BY e.nr, past.seq DESC

-- name: stuck
-- Adds jobs of items that make no progress: they have failed from the beginning.
WITH e AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::json) AS e(
    id text, queue text, rank int, max_attempts int, timeout_ms bigint, key text, item text, label text, payload text)),
made AS (
  INSERT INTO chargehand_job (id, queue, rank, run_at_ms, max_attempts, timeout_ms, key, item, label, created_ms,
    payload)
  SELECT id, queue, rank, {now}, max_attempts, timeout_ms, key, item, label, {now}, payload FROM e
  RETURNING seq, queue)
INSERT INTO chargehand_end (seq, queue, state, finished_ms, run_at_ms, attempts, crashes, interruptions, reason, error)
SELECT seq, queue, 'failed', {now}, {now}, 0, 0, 0, 'no progress', $3 FROM made
