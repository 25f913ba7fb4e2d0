-- Statements about the rates of queues and keys. All but `rated` follow the lock of the queue's row in chargehand_limit,
-- and their time is that after the lock: a transaction may have waited for it.

-- name: now
SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
  (SELECT max(at_ms) FROM chargehand_start WHERE queue = $2)

-- name: standings
-- $1 the time. For each key and rate of $3: how many were started within the period, and the time of the start that
-- decides when there is room again. Each is found by the primary key.
SELECT w.key, w.nr, coalesce(w.last - w.before, 0), (
  SELECT at_ms FROM chargehand_start s
  WHERE s.queue = $2 AND s.key = w.key AND s.at_ms > $1::bigint - w.period
    AND s.total > greatest(w.last - w.most, w.before) ORDER BY at_ms LIMIT 1)
FROM (
  SELECT e.*,
    (SELECT total FROM chargehand_start s WHERE s.queue = $2 AND s.key = e.key ORDER BY at_ms DESC LIMIT 1) AS last,
    (SELECT total - jobs FROM chargehand_start s
      WHERE s.queue = $2 AND s.key = e.key AND s.at_ms > $1::bigint - e.period ORDER BY at_ms LIMIT 1) AS before
  FROM json_to_recordset($3::json) AS e(key text, nr int, most bigint, period bigint)) AS w

-- name: count_now
-- Starts in the future are those of a clock that was set back since: they count as of now.
WITH ahead AS (DELETE FROM chargehand_start WHERE queue = $2 AND at_ms > $1::bigint RETURNING key, jobs, total)
INSERT INTO chargehand_start (queue, key, at_ms, jobs, total)
SELECT $2, key, $1::bigint, sum(jobs), max(total) FROM ahead GROUP BY key
ON CONFLICT (queue, key, at_ms) DO UPDATE SET jobs = chargehand_start.jobs + excluded.jobs, total = excluded.total

-- name: open_earlier
UPDATE chargehand_opening SET opens_ms = $2::bigint WHERE queue = $1 AND opens_ms > $2::bigint

-- name: start
INSERT INTO chargehand_start (queue, key, at_ms, jobs, total)
SELECT $2, e.key, $1::bigint, e.jobs, e.jobs + coalesce(
  (SELECT total FROM chargehand_start s WHERE s.queue = $2 AND s.key = e.key ORDER BY at_ms DESC LIMIT 1), 0)
FROM json_to_recordset($3::json) AS e(key text, jobs bigint)
ON CONFLICT (queue, key, at_ms) DO UPDATE SET jobs = chargehand_start.jobs + excluded.jobs, total = excluded.total

-- name: sweep
DELETE FROM chargehand_start WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM chargehand_start WHERE queue = $1 AND at_ms <= $2::bigint ORDER BY at_ms LIMIT $3::bigint))

-- name: unstart
-- These claims are given back, and no worker had the jobs. Before their rows are changed.
WITH back AS MATERIALIZED (
  SELECT t.queue, k.key, t.started_ms AS at_ms, count(*) AS jobs
  FROM json_to_recordset($2::json) AS e(seq bigint, claim bigint)
    CROSS JOIN LATERAL (
      SELECT * FROM chargehand_live l WHERE l.seq = e.seq AND l.claim IS NOT DISTINCT FROM e.claim FOR UPDATE) AS t
    JOIN chargehand_limit l ON l.queue = t.queue
    CROSS JOIN LATERAL (VALUES ('', l.rate), (t.limit_key, l.rate_per_key)) AS k(key, rate)
  WHERE k.key IS NOT NULL AND k.rate IS NOT NULL GROUP BY 1, 2, 3),
known AS MATERIALIZED (
  SELECT b.* FROM back b JOIN chargehand_start s ON s.queue = b.queue AND s.key = b.key AND s.at_ms = b.at_ms),
opened AS (
  UPDATE chargehand_opening o SET opens_ms = least(o.opens_ms, {now}) FROM known k
  WHERE o.queue = k.queue AND o.key = k.key)
UPDATE chargehand_start s SET
  jobs = s.jobs - coalesce(
    (SELECT k.jobs FROM known k WHERE k.queue = s.queue AND k.key = s.key AND k.at_ms = s.at_ms), 0),
  total = s.total - (
    SELECT sum(k.jobs) FROM known k WHERE k.queue = s.queue AND k.key = s.key AND k.at_ms <= s.at_ms)
FROM (SELECT queue, key, min(at_ms) AS since FROM known GROUP BY 1, 2) AS f
WHERE s.queue = f.queue AND s.key = f.key AND s.at_ms >= f.since

-- name: opened
SELECT key FROM chargehand_opening WHERE queue = $1 AND opens_ms <= $2::bigint ORDER BY opens_ms LIMIT $3::bigint

-- name: opens
SELECT min(opens_ms) FROM chargehand_opening WHERE queue = $1

-- name: close
INSERT INTO chargehand_opening (queue, key, opens_ms)
SELECT $1, key, opens_ms FROM json_to_recordset($2::json) AS e(key text, opens_ms bigint) ORDER BY key
ON CONFLICT (queue, key) DO UPDATE SET opens_ms = excluded.opens_ms

-- name: open
DELETE FROM chargehand_opening WHERE queue = $1 AND key = ANY ($2::text[])

-- name: bring_back_of
-- The next jobs of these keys, so many of each. Returns the keys that have more.
WITH n AS MATERIALIZED (
  SELECT e.key, e.back, a.at, a.nr FROM json_to_recordset($2::json) AS e(key text, back bigint) CROSS JOIN LATERAL (
    SELECT at, row_number() OVER () AS nr FROM (
      SELECT ctid AS at FROM chargehand_live t WHERE t.queue = $1 AND t.limit_key = e.key AND waits = 'limit'
      ORDER BY rank, place, seq LIMIT e.back + 1 FOR UPDATE) AS o) AS a),
back AS (
  UPDATE chargehand_live SET waits = NULL WHERE ctid = ANY (ARRAY(SELECT at FROM n WHERE nr <= n.back)))
SELECT key FROM n WHERE nr > n.back

-- name: rated
SELECT queue, rate, (SELECT min(opens_ms) FROM chargehand_opening o WHERE o.queue = l.queue), {now}
FROM chargehand_limit l WHERE rate IS NOT NULL OR rate_per_key IS NOT NULL
