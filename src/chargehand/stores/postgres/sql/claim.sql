-- Statements of a claim. A claim from a queue without limits, while there are no suspects, is one round trip; every
-- other claim decides in the model, under the lock of the queue's row in chargehand_limit.

-- name: promote
UPDATE chargehand_live SET waits = NULL WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM chargehand_live WHERE queue = $2 AND waits = 'time' AND run_at_ms <= {now}
  ORDER BY run_at_ms LIMIT $3::bigint FOR UPDATE SKIP LOCKED))

-- name: claim
-- $3 crew, $4 limit, $5 claim number, $6 incarnation, $7 node, $8 how many are for workers that are free now, $9 whether
-- the incarnation must have a row, $10 whether limits and suspects are taken care of, $11 jobs to leave, $12 to $14 the
-- position to begin at.
WITH picked AS MATERIALIZED (
  SELECT at, first, row_number() OVER () AS nr FROM (
    SELECT ctid AS at, started_ms IS NULL AS first FROM chargehand_live
    WHERE queue = $2 AND claim IS NULL AND waits IS NULL
      AND (rank, place, seq) >= ($12::int, $13::bigint, $14::bigint) AND seq <> ALL ($11::bigint[])
      AND NOT EXISTS (
        SELECT FROM chargehand_pause WHERE scope IN ('*', $3, $7::text || '/*', $7::text || '/' || $3::text)
          AND (until_ms IS NULL OR until_ms > {now}))
      AND (NOT $9::boolean OR EXISTS (SELECT FROM chargehand_node WHERE incarnation = $6))
      AND ($10::boolean OR NOT EXISTS (SELECT FROM chargehand_limit WHERE queue = $2)
        AND NOT EXISTS (SELECT FROM chargehand_suspect WHERE job > 0))
    ORDER BY rank, place, seq LIMIT $4::bigint FOR UPDATE SKIP LOCKED) AS ready)
UPDATE chargehand_live t SET claim = $5::bigint, incarnation = $6, node = $7, worker = NULL, started_ms = {now},
  ahead = CASE WHEN p.nr > $8::bigint THEN true END
FROM picked p, chargehand_job j
WHERE t.ctid = p.at AND j.seq = t.seq
RETURNING p.nr, j.id, t.seq, t.queue, j.payload, j.label, t.rank, t.attempts, j.max_attempts, t.crashes, j.timeout_ms,
  j.item, j.tags, greatest(0, {now} - t.run_at_ms), t.failed_in, t.place, p.first, t.flow,
  CASE WHEN NOT p.first THEN (SELECT state FROM chargehand_kept k WHERE k.job = t.seq) END,
  t.attempts + t.crashes + t.interruptions = 0 AND t.expires_at_ms <= {now}, j.meta, j.traceparent

-- name: claim_these
-- $7 whether the incarnation must have a row. (IS TRUE: the index of all jobs that are ready is not read.)
UPDATE chargehand_live t SET claim = $3::bigint, incarnation = $4, node = $5, worker = NULL, started_ms = {now},
  ahead = CASE WHEN p.nr > $6::bigint THEN true END
FROM unnest($2::bigint[]) WITH ORDINALITY AS p(seq, nr)
  CROSS JOIN LATERAL (SELECT * FROM chargehand_job WHERE seq = p.seq OFFSET 0) AS j
  CROSS JOIN LATERAL (SELECT started_ms FROM chargehand_live WHERE seq = p.seq OFFSET 0) AS o
WHERE t.seq = p.seq AND t.seq = ANY ($2::bigint[]) AND (t.claim IS NULL AND t.waits IS NULL) IS TRUE
  AND (NOT $7::boolean OR EXISTS (SELECT FROM chargehand_node WHERE incarnation = $4))
RETURNING p.nr, j.id, t.seq, t.queue, j.payload, j.label, t.rank, t.attempts, j.max_attempts, t.crashes, j.timeout_ms,
  j.item, j.tags, greatest(0, {now} - t.run_at_ms), t.failed_in, t.place, o.started_ms IS NULL, t.flow,
  CASE WHEN o.started_ms IS NOT NULL THEN (SELECT state FROM chargehand_kept k WHERE k.job = t.seq) END,
  t.attempts + t.crashes + t.interruptions = 0 AND t.expires_at_ms <= {now}, j.meta, j.traceparent

-- name: look
-- What a claim must report of its queue: pauses, the next scheduled job, whether there are limits and suspects, and how
-- many jobs are left ($4), and how many of them are more urgent ($6) than a rank ($5). $8 is the node.
SELECT
  (SELECT count(*) FROM chargehand_pause WHERE scope IN ('*', $3, $8::text || '/*', $8::text || '/' || $3::text)
    AND (until_ms IS NULL OR until_ms > {now})),
  (SELECT CASE WHEN bool_or(until_ms IS NULL) THEN NULL ELSE max(until_ms) - {now} END FROM chargehand_pause
    WHERE scope IN ('*', $3, $8::text || '/*', $8::text || '/' || $3::text) AND (until_ms IS NULL OR until_ms > {now})),
  (SELECT min(run_at_ms) FROM chargehand_live WHERE queue = $2 AND waits = 'time') - {now},
  EXISTS (SELECT FROM chargehand_limit WHERE queue = $2) OR EXISTS (SELECT FROM chargehand_suspect WHERE job > 0),
  (SELECT count(*) FROM (
    SELECT FROM chargehand_live WHERE queue = $2 AND claim IS NULL AND waits IS NULL AND seq <> ALL ($7::bigint[])
    LIMIT $4::bigint) AS w),
  (SELECT count(*) FROM (
    SELECT FROM chargehand_live WHERE queue = $2 AND claim IS NULL AND waits IS NULL AND rank < $5::int
      AND seq <> ALL ($7::bigint[])
    LIMIT $6::bigint) AS u)

-- name: lock
-- First in its transaction and in a statement of its own: what follows must see what was committed before the lock.
SELECT queue, allowed, allowed_per_key, rate, rate_per_key FROM chargehand_limit WHERE queue = ANY ($1::text[])
ORDER BY queue FOR UPDATE

-- name: running
SELECT count(*) FROM chargehand_live WHERE queue = $1 AND claim IS NOT NULL

-- name: running_by_key
SELECT limit_key, count(*) FROM chargehand_live
WHERE queue = $1 AND claim IS NOT NULL AND limit_key IS NOT NULL GROUP BY limit_key

-- name: ready
SELECT seq, limit_key FROM chargehand_live
WHERE queue = $1 AND claim IS NULL AND waits IS NULL AND seq <> ALL ($3::bigint[])
ORDER BY rank, place, seq LIMIT $2::bigint

-- name: set_aside
UPDATE chargehand_live SET waits = 'limit' WHERE seq = ANY ($1::bigint[]) AND claim IS NULL AND waits IS NULL

-- name: bring_back
-- Each of these jobs has freed a slot of its key: the next job of the key may be claimed again. The last condition is
-- tested once: without limits of keys, no job is read. It also returns whether a job may wait for one of these: after the
-- locks of `settle`, so that nobody overlooks the other. The checkpoint of a job that is done is not needed any more.
WITH back AS (
  UPDATE chargehand_live SET waits = NULL WHERE ctid = ANY (ARRAY(
    SELECT n.at FROM (
      SELECT j.queue, {lookup j.limit_key} AS limit_key, count(*) AS free
      FROM unnest($1::bigint[]) AS e(seq) JOIN chargehand_job j ON j.seq = e.seq
        JOIN chargehand_limit l ON l.queue = j.queue
      WHERE j.limit_key IS NOT NULL AND l.allowed_per_key IS NOT NULL
        AND EXISTS (SELECT FROM chargehand_limit WHERE allowed_per_key IS NOT NULL) GROUP BY 1, 2) AS f
    CROSS JOIN LATERAL (
      SELECT ctid AS at FROM chargehand_live t WHERE t.queue = f.queue AND t.limit_key = f.limit_key AND waits = 'limit'
      ORDER BY rank, place, seq LIMIT f.free FOR UPDATE) AS n))),
used AS (
  DELETE FROM chargehand_kept k WHERE k.job = ANY ($1::bigint[]) AND EXISTS (SELECT FROM chargehand_kept)
    AND EXISTS (SELECT FROM chargehand_end x WHERE x.seq = k.job AND x.state = 'done'))
SELECT EXISTS (SELECT FROM chargehand_edge WHERE open)

-- name: bring_back_next
-- As `bring_back`, for jobs that waited: the next one takes their place with the limit of their key, or with its rate.
UPDATE chargehand_live SET waits = NULL WHERE ctid = ANY (ARRAY(
  SELECT n.at FROM (
    SELECT j.queue, {lookup j.limit_key} AS limit_key, count(*) AS free
    FROM unnest($1::bigint[]) AS e(seq) JOIN chargehand_job j ON j.seq = e.seq
      JOIN chargehand_limit l ON l.queue = j.queue
    WHERE j.limit_key IS NOT NULL AND (l.allowed_per_key IS NOT NULL OR l.rate_per_key IS NOT NULL)
    GROUP BY 1, 2) AS f
  CROSS JOIN LATERAL (
    SELECT ctid AS at FROM chargehand_live t WHERE t.queue = f.queue AND t.limit_key = f.limit_key AND waits = 'limit'
    ORDER BY rank, place, seq LIMIT f.free FOR UPDATE) AS n))

-- name: bring_all_back
UPDATE chargehand_live SET waits = NULL WHERE queue = $1 AND waits = 'limit'

-- name: limits
SELECT queue, allowed, allowed_per_key, rate, rate_per_key FROM chargehand_limit ORDER BY queue FOR UPDATE

-- name: set_limit
INSERT INTO chargehand_limit (queue, allowed, allowed_per_key, rate, rate_per_key) VALUES ($1, $2::int, $3::int, $4, $5)
ON CONFLICT (queue) DO UPDATE SET allowed = excluded.allowed, allowed_per_key = excluded.allowed_per_key,
  rate = excluded.rate, rate_per_key = excluded.rate_per_key

-- name: drop_limit
DELETE FROM chargehand_limit WHERE queue = $1

-- name: open_all
DELETE FROM chargehand_opening WHERE queue = $1

-- name: waiting_keys
SELECT DISTINCT queue FROM chargehand_opening

-- name: suspects
SELECT s.job, coalesce(x.state, CASE WHEN t.seq IS NULL THEN NULL WHEN t.claim IS NULL THEN 'queued' ELSE 'running' END),
  t.queue, -t.rank, t.waits IS NULL, t.incarnation IS NOT DISTINCT FROM $1
FROM chargehand_suspect s LEFT JOIN chargehand_live t ON t.seq = s.job LEFT JOIN chargehand_end x ON x.seq = s.job

-- name: forget_suspects
DELETE FROM chargehand_suspect WHERE job = ANY ($1::bigint[])

-- name: forgive
DELETE FROM chargehand_suspect WHERE job IN (SELECT seq FROM chargehand_job WHERE id = ANY ($1::text[]))

-- name: add_suspects
INSERT INTO chargehand_suspect (job, since_ms, incarnation)
SELECT job, {now}, incarnation FROM json_to_recordset($2::json) AS e(job bigint, incarnation text) ON CONFLICT DO NOTHING

-- name: acquit
-- These lives had not died: their node was only cut off.
DELETE FROM chargehand_suspect WHERE incarnation = ANY ($1::text[])

-- name: orphans
-- Claims of other incarnations, unless they belong to a living node of another name. The workers in $3 cannot be killed.
-- (`held` is read in the order of the index of what runs; the rows are locked by seq, as everybody locks them.)
WITH held AS MATERIALIZED (
  SELECT seq FROM chargehand_live t WHERE claim IS NOT NULL AND incarnation <> $2
    AND NOT EXISTS (SELECT FROM chargehand_node n WHERE n.incarnation = t.incarnation AND n.name <> $4)
    AND (cardinality($3::text[]) = 0 OR worker IS NOT NULL AND worker <> ALL ($3::text[]))
  ORDER BY queue, limit_key)
SELECT j.id, t.seq, t.claim, t.queue, t.crashes, t.node, t.incarnation, t.worker,
  greatest(0, {now} - t.started_ms), EXISTS (SELECT FROM chargehand_suspect s WHERE s.job = t.seq)
FROM (SELECT seq FROM held ORDER BY seq) AS h
  CROSS JOIN LATERAL (
    SELECT * FROM chargehand_live WHERE seq = h.seq AND (claim IS NOT NULL) IS TRUE AND incarnation <> $2 FOR UPDATE) AS t
  CROSS JOIN LATERAL (SELECT id FROM chargehand_job WHERE seq = h.seq OFFSET 0) AS j

-- name: living_of
-- Those of these lives that belong to a living node of another name.
SELECT incarnation FROM chargehand_node WHERE incarnation = ANY ($1::text[]) AND name <> $2

-- name: limited_of
-- The lock of the limited queues with jobs of this claim; see `lock`.
SELECT l.queue FROM chargehand_limit l
WHERE queue IN (SELECT queue FROM chargehand_live WHERE claim = $1::bigint AND incarnation = $2) ORDER BY queue FOR UPDATE

-- name: give_back
-- Ends claims of a turn whose commit was not acknowledged: no worker ever had these jobs.
UPDATE chargehand_live SET claim = NULL, incarnation = NULL, node = NULL, worker = NULL, ahead = NULL
WHERE claim = $1::bigint AND incarnation = $2

-- name: claimed_under
SELECT seq, claim FROM chargehand_live WHERE claim = $1::bigint AND incarnation = $2

-- name: held_by
SELECT j.id, t.seq, t.claim, t.queue FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq
WHERE t.claim IS NOT NULL AND t.incarnation = $1
