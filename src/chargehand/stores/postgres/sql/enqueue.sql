-- Statements that add jobs. Jobs arrive as one JSON text: lists of values cost the client far more.

-- name: enqueue
-- Jobs without a share take turns with those that have one, as if they had one of their own.
-- A job with a parent is added only if that outcome was accepted: `chargehand_end` has the parent, in the state that it
-- `becomes` (null: done), with the same claim.
WITH e AS MATERIALIZED (
  SELECT * FROM ROWS FROM (json_to_recordset($2::json) AS (
    id text, queue text, rank int, delay_ms bigint, run_at_ms bigint, max_attempts int, timeout_ms bigint, key text,
    limit_key text, item text, label text, tags text, payload text, parent bigint, claim bigint, becomes text
  )) WITH ORDINALITY AS e(id, queue, rank, delay_ms, run_at_ms, max_attempts, timeout_ms, key, limit_key, item, label,
    tags, payload, parent, claim, becomes, nr)
  WHERE (parent IS NULL
    OR EXISTS (SELECT FROM chargehand_end x WHERE x.seq = e.parent AND x.claim IS NOT DISTINCT FROM e.claim
      AND x.state = coalesce(e.becomes, 'done')))
    AND (key IS NULL OR (SELECT o.job FROM chargehand_once o
      WHERE o.queue = e.queue AND o.key = {lookup e.key} AND o.until_ms > {now}) IS NULL)),
made AS (
  INSERT INTO chargehand_job (id, queue, rank, run_at_ms, max_attempts, timeout_ms, key, limit_key, item, label, tags,
    created_ms, payload)
  SELECT id, queue, rank, coalesce(run_at_ms, {now} + delay_ms), max_attempts, timeout_ms, key, limit_key, item, label,
    tags, {now}, payload
  FROM e ORDER BY nr
  ON CONFLICT (id) DO NOTHING RETURNING seq, id, queue, rank, key, limit_key, run_at_ms),
shared AS (
  SELECT m.*, CASE WHEN EXISTS (
    SELECT FROM chargehand_live r WHERE r.queue = m.queue AND r.rank = m.rank AND r.share > '') THEN '' END AS share
  FROM made m WHERE (SELECT EXISTS (SELECT FROM chargehand_live WHERE share IS NOT NULL))),
due AS (
  INSERT INTO chargehand_live (seq, place, queue, rank, key, limit_key, waits, run_at_ms, share)
  SELECT seq, own, queue, rank, {lookup key}, {lookup limit_key}, CASE WHEN run_at_ms > {now} THEN 'time' END, run_at_ms,
    share
  FROM (
    SELECT seq, seq AS own, queue, rank, key, limit_key, run_at_ms, NULL AS share FROM made
    WHERE NOT (SELECT EXISTS (SELECT FROM chargehand_live WHERE share IS NOT NULL))
    UNION ALL
    SELECT seq, own, queue, rank, key, limit_key, run_at_ms, share FROM {placed shared} AS p) AS placed
  ORDER BY seq
  ON CONFLICT (queue, key) WHERE key IS NOT NULL DO NOTHING RETURNING seq)
SELECT id FROM made WHERE (seq IN (SELECT seq FROM due)) IS TRUE

-- name: unknown
-- Those of these ids that belong to no job.
SELECT id FROM json_array_elements_text($1::json) AS e(id)
WHERE NOT EXISTS (SELECT FROM chargehand_job j WHERE j.id = e.id)
  AND NOT EXISTS (SELECT FROM chargehand_alias a WHERE a.id = e.id)

-- name: join_flows
-- A flow does not end while this lock is held. Nobody waits for it, and other changes of the flow go on. The ids are sorted.
-- Each is looked up: a caller's connection plans this while there are few flows, and keeps the plan.
SELECT f.id, f.ended_ms IS NOT NULL FROM json_array_elements_text($1::json) AS e(id) CROSS JOIN LATERAL (
  SELECT id, ended_ms FROM chargehand_flow WHERE id = e.id FOR KEY SHARE) AS f

-- name: add_linked
-- The first statement for jobs that have more options than `enqueue` takes. Their numbers are taken beforehand: so no row
-- needs to be looked up again. The flow stays empty if it has ended. `waits` as `sequence` is replaced by a later statement
-- of the transaction. `error` names what a job was enqueued with that does not exist.
-- What waits for a job waits for its children, too: a follower of which it is not known yet is looked at later, and one
-- that has ended may be queued again. An edge to 0 stands for a flow that does not exist, or has ended.
WITH e AS MATERIALIZED (
  SELECT nextval('chargehand_job_seq_seq') AS seq, e.*, coalesce(e.run_at_ms, {now} + e.delay_ms) AS at, f.id AS joined,
    f.place AS flow_place, e.follows IS TRUE OR e.flow IS NOT NULL AND f.id IS NULL AS held,
    f.arrival IS FALSE AND (e.follows IS TRUE OR x.flow = f.id) AS led
  FROM json_to_recordset($2::json) AS e(
      id text, queue text, rank int, delay_ms bigint, run_at_ms bigint, max_attempts int, timeout_ms bigint, key text,
      limit_key text, label text, tags text, payload text, flow text, spawned_by text, share text, sequence text,
      expires_ms bigint, meta text, traceparent text, parent bigint, claim bigint, becomes text, follows boolean,
      after json)
    LEFT JOIN LATERAL (
      SELECT id, arrival, place FROM chargehand_flow WHERE id = e.flow AND ended_ms IS NULL OFFSET 0) AS f ON true
    LEFT JOIN LATERAL (
      SELECT claim, state, flow FROM chargehand_end WHERE seq = e.parent OFFSET 0) AS x ON true
  WHERE (parent IS NULL OR x.claim IS NOT DISTINCT FROM e.claim AND x.state = coalesce(e.becomes, 'done'))
    AND (key IS NULL OR (SELECT o.job FROM chargehand_once o
      WHERE o.queue = e.queue AND o.key = {lookup e.key} AND o.until_ms > {now}) IS NULL)),
made AS (
  INSERT INTO chargehand_job (seq, id, queue, rank, run_at_ms, max_attempts, timeout_ms, key, limit_key, label, tags,
    created_ms, payload, flow, parent, share, sequence, expires_at_ms, meta, traceparent)
  SELECT seq, id, queue, rank, at, max_attempts, timeout_ms, key, limit_key, label, tags, {now}, payload, joined,
    spawned_by, share, sequence, {now} + expires_ms, meta, traceparent
  FROM e ORDER BY seq
  ON CONFLICT (id) DO NOTHING RETURNING seq, id),
new AS (
  SELECT seq, queue, rank, key, limit_key, at, joined, sequence, {now} + expires_ms AS expires_at_ms, held, led, flow_place,
    CASE WHEN share IS NOT NULL THEN {lookup share} WHEN EXISTS (
      SELECT FROM chargehand_live r WHERE r.queue = e.queue AND r.rank = e.rank AND r.share > '') THEN '' END AS share,
    CASE WHEN flow IS NOT NULL AND joined IS NULL THEN flow WHEN follows AND parent IS NOT NULL THEN (
      SELECT a.id FROM json_array_elements_text(after) AS a(id)
      WHERE (a.id IN (SELECT id FROM made)) IS NOT TRUE
        AND NOT EXISTS (SELECT FROM chargehand_job p WHERE p.id = a.id)
        AND NOT EXISTS (SELECT FROM chargehand_alias p WHERE p.id = a.id) LIMIT 1) END AS lacks
  FROM e WHERE (seq IN (SELECT seq FROM made)) IS TRUE),
due AS (
  INSERT INTO chargehand_live (seq, place, queue, rank, key, limit_key, waits, run_at_ms, flow, share, expires_at_ms,
    error)
  SELECT seq, CASE WHEN led THEN coalesce(flow_place, first_value(own) OVER (PARTITION BY joined ORDER BY seq)) ELSE own END,
    queue, rank, {lookup key}, {lookup limit_key},
    CASE WHEN sequence IS NOT NULL THEN 'sequence' WHEN held THEN 'jobs' WHEN at > {now} THEN 'time' END,
    at, joined, share, expires_at_ms, lacks
  FROM {placed new} AS p
  ORDER BY seq
  ON CONFLICT (queue, key) WHERE key IS NOT NULL DO NOTHING RETURNING seq),
edges AS (
  INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due)
  SELECT g.job, e.seq, g.nr, g.strict, g.open, false
  FROM e CROSS JOIN LATERAL (SELECT * FROM chargehand_edge WHERE predecessor = e.parent OFFSET 0) AS g
  WHERE e.spawned_by IS NOT NULL AND NOT g.due AND g.nr >= 0 AND (e.seq IN (SELECT seq FROM due)) IS TRUE
  UNION ALL
  SELECT seq, 0, -2, true, true, true FROM e
  WHERE flow IS NOT NULL AND joined IS NULL AND (seq IN (SELECT seq FROM due)) IS TRUE)
SELECT id FROM made WHERE (seq IN (SELECT seq FROM due)) IS TRUE

-- name: add_spawned
-- As `add_linked`, for jobs without keys that are added with outcomes: $2 has the jobs of each outcome and flow. Nobody else
-- adds them meanwhile, because the outcome has its job locked, so rows need not be inserted in the expectation of a
-- conflict, which takes a tenth longer. The jobs of an outcome that this transaction has written (`fresh`) do not exist yet.
-- Only where there are shares, places are computed.
WITH o AS MATERIALIZED (
  SELECT o.*, x.fresh, f.id AS joined, f.place AS flow_place, o.flow IS NOT NULL AND f.id IS NULL AS lost,
    f.arrival IS FALSE AS ordered, f.arrival IS FALSE AND x.flow = f.id AS inside
  FROM json_to_recordset($2::json) AS o(
      parent bigint, claim bigint, becomes text, spawned_by text, flow text, jobs json)
    CROSS JOIN LATERAL (
      SELECT flow, xmin = pg_current_xact_id()::xid AS fresh FROM chargehand_end
      WHERE seq = o.parent AND claim IS NOT DISTINCT FROM o.claim AND state = coalesce(o.becomes, 'done') OFFSET 0) AS x
    LEFT JOIN LATERAL (
      SELECT id, arrival, place FROM chargehand_flow WHERE id = o.flow AND ended_ms IS NULL OFFSET 0) AS f ON true),
e AS MATERIALIZED (
  SELECT nextval('chargehand_job_seq_seq') AS seq, e.*, o.parent, o.spawned_by, o.flow, o.joined, o.flow_place, o.lost,
    coalesce(e.run_at_ms, {now} + coalesce(e.delay_ms, 0)) AS at, {now} + e.expires_ms AS expires_at_ms,
    o.lost OR e.after IS NOT NULL AS held, o.inside OR o.ordered AND e.after IS NOT NULL AS led
  FROM o CROSS JOIN LATERAL json_to_recordset(o.jobs) AS e(
    id text, queue text, rank int, delay_ms bigint, run_at_ms bigint, max_attempts int, timeout_ms bigint, limit_key text,
    label text, tags text, payload text, share text, sequence text, expires_ms bigint, meta text, traceparent text, after json)
  WHERE o.fresh OR (SELECT j.seq FROM chargehand_job j WHERE j.id = e.id) IS NULL),
shares AS MATERIALIZED (
  SELECT EXISTS (SELECT FROM e WHERE share IS NOT NULL) OR EXISTS (SELECT FROM chargehand_live WHERE share IS NOT NULL) AS found),
new AS (
  SELECT seq, queue, coalesce(rank, 0) AS rank, limit_key, at, joined, sequence, expires_at_ms, held, led, flow_place,
    CASE WHEN share IS NOT NULL THEN {lookup share} WHEN (
      SELECT r.share FROM chargehand_live r WHERE r.queue = e.queue AND r.rank = coalesce(e.rank, 0) AND r.share > '' LIMIT 1)
      IS NOT NULL THEN '' END AS share,
    CASE WHEN lost THEN flow WHEN after IS NOT NULL THEN (
      SELECT a.id FROM json_array_elements_text(after) AS a(id)
      WHERE (a.id IN (SELECT id FROM e)) IS NOT TRUE
        AND (SELECT p.seq FROM chargehand_job p WHERE p.id = a.id) IS NULL
        AND (SELECT p.job FROM chargehand_alias p WHERE p.id = a.id) IS NULL LIMIT 1) END AS lacks
  FROM e),
ready AS NOT MATERIALIZED (
  SELECT n.*, n.seq AS own FROM new n WHERE NOT (SELECT found FROM shares)
  UNION ALL
  SELECT p.seq, p.queue, p.rank, p.limit_key, p.at, p.joined, p.sequence, p.expires_at_ms, p.held, p.led, p.flow_place,
    p.share, p.lacks, p.own
  FROM {placed new} AS p WHERE (SELECT found FROM shares)),
first AS (  -- of flows without a place; as a rule not read
  SELECT DISTINCT ON (joined) joined, own FROM ready WHERE joined IS NOT NULL AND flow_place IS NULL ORDER BY joined, seq),
made AS (
  INSERT INTO chargehand_job (seq, id, queue, rank, run_at_ms, max_attempts, timeout_ms, limit_key, label, tags, created_ms,
    payload, flow, parent, share, sequence, expires_at_ms, meta, traceparent)
  SELECT seq, id, queue, coalesce(rank, 0), at, max_attempts, timeout_ms, limit_key, label, tags, {now}, payload, joined,
    spawned_by, share, sequence, expires_at_ms, meta, traceparent
  FROM e),
live AS (
  INSERT INTO chargehand_live (seq, place, queue, rank, limit_key, waits, run_at_ms, flow, share, expires_at_ms, error)
  SELECT seq, CASE WHEN led THEN coalesce(flow_place, (SELECT f.own FROM first f WHERE f.joined = r.joined)) ELSE own END,
    queue, rank, {lookup limit_key},
    CASE WHEN sequence IS NOT NULL THEN 'sequence' WHEN held THEN 'jobs' WHEN at > {now} THEN 'time' END,
    at, joined, share, expires_at_ms, lacks
  FROM ready r),
edges AS (
  INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due)
  SELECT g.job, e.seq, g.nr, g.strict, g.open, false
  FROM e CROSS JOIN LATERAL (SELECT * FROM chargehand_edge WHERE predecessor = e.parent OFFSET 0) AS g
  WHERE e.spawned_by IS NOT NULL AND NOT g.due AND g.nr >= 0
  UNION ALL
  SELECT seq, 0, -2, true, true, true FROM e WHERE lost)
SELECT count(*) FROM e

-- name: place_flows
-- The place of a flow is that of its first job.
UPDATE chargehand_flow f SET place = (SELECT place FROM chargehand_live t WHERE t.flow = f.id ORDER BY seq LIMIT 1)
WHERE id = ANY (ARRAY(SELECT json_array_elements_text($1::json))) AND (place IS NULL) IS TRUE

-- name: add_edges
-- A predecessor that this transaction has added cannot have ended; every other one is looked at later, and not locked here.
-- A number below 0 stands for a predecessor that does not exist. A job that has such edges already was added before.
-- OFFSET 0 and the scalar queries: each row is looked up in an index, whatever the statistics say of tables that were
-- empty a moment ago.
WITH e AS MATERIALIZED (
  SELECT j.seq, e.strict, e.after
  FROM json_to_recordset($1::json) AS e(id text, strict boolean, after json, follows boolean)
    CROSS JOIN LATERAL (SELECT seq FROM chargehand_job WHERE id = e.id OFFSET 0) AS j
  WHERE e.follows AND (SELECT waits FROM chargehand_live t WHERE t.seq = j.seq) IN ('jobs', 'sequence')
    AND (SELECT job FROM chargehand_edge g WHERE g.job = j.seq AND g.nr >= 0 LIMIT 1) IS NULL)
INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due)
SELECT e.seq, coalesce(p.seq, (SELECT job FROM chargehand_alias WHERE id = a.id), -a.nr), a.nr - 1, coalesce(e.strict, true),
  true, (p.xmin = pg_current_xact_id()::xid
    AND (SELECT t.seq FROM chargehand_live t WHERE t.seq = p.seq) IS NOT NULL) IS NOT TRUE
FROM e CROSS JOIN LATERAL ROWS FROM (json_array_elements_text(e.after)) WITH ORDINALITY AS a(id, nr)
  LEFT JOIN LATERAL (SELECT seq, xmin FROM chargehand_job WHERE id = a.id OFFSET 0) AS p ON true
ON CONFLICT DO NOTHING

-- name: spawn_taken
-- A child whose key another job has: what waits for the parent waits for that job, unless that one waits for it, or had
-- ended badly (then it has no parent as an alias).
INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due, ordinal)
SELECT g.job, a.job, g.nr, g.strict, g.open, g.open, a.ordinal
FROM json_to_recordset($1::json) AS e(id text, parent bigint, claim bigint, spawned_by text)
  JOIN chargehand_alias a ON a.id = e.id AND a.parent = e.spawned_by JOIN chargehand_edge g ON g.predecessor = e.parent
WHERE e.spawned_by IS NOT NULL AND g.nr >= 0
  AND EXISTS (SELECT FROM chargehand_end x WHERE x.seq = e.parent AND x.claim IS NOT DISTINCT FROM e.claim)
  AND NOT EXISTS (  -- of two followers that have keys of children, the later one in the order waits
    SELECT FROM chargehand_alias b WHERE b.job = g.job AND b.parent = e.spawned_by AND b.ordinal <= a.ordinal)
  AND NOT EXISTS (
    WITH RECURSIVE r(seq) AS (
      SELECT a.job UNION SELECT o.predecessor FROM r JOIN chargehand_edge o ON o.job = r.seq WHERE o.open)
    SELECT FROM r WHERE r.seq = g.job)
ON CONFLICT DO NOTHING

-- name: untangle_taken
-- After `spawn_taken`: those of its jobs that would wait for each other, because each has the key of a child, do not.
DELETE FROM chargehand_edge g
USING json_to_recordset($1::json) AS e(id text, spawned_by text)
  CROSS JOIN LATERAL (SELECT job, ordinal FROM chargehand_alias WHERE id = e.id AND parent = e.spawned_by OFFSET 0) AS a
WHERE g.predecessor = a.job AND g.ordinal = a.ordinal AND g.open AND EXISTS (
  WITH RECURSIVE r(seq) AS (
    SELECT g.predecessor UNION SELECT o.predecessor FROM r JOIN chargehand_edge o ON o.job = r.seq WHERE o.open)
  SELECT FROM r WHERE r.seq = g.job)

-- name: refuse_circles
-- A child that would wait, through others, for a job that waits for the child fails: neither could ever run.
WITH RECURSIVE n AS MATERIALIZED (
  SELECT j.seq, e.spawned_by FROM json_to_recordset($1::json) AS e(id text, spawned_by text, follows boolean)
    CROSS JOIN LATERAL (SELECT seq, sequence FROM chargehand_job WHERE id = e.id OFFSET 0) AS j
  WHERE (e.follows OR j.sequence IS NOT NULL) AND e.spawned_by IS NOT NULL
    AND (SELECT t.waits FROM chargehand_live t WHERE t.seq = j.seq) IN ('jobs', 'sequence')),
r(start, seq) AS (
  SELECT n.seq, g.predecessor FROM n JOIN chargehand_edge g ON g.job = n.seq WHERE g.open
  UNION
  SELECT r.start, g.predecessor FROM r JOIN chargehand_edge g ON g.job = r.seq WHERE g.open),
c AS MATERIALIZED (SELECT n.seq, n.spawned_by FROM n WHERE EXISTS (SELECT FROM r WHERE r.start = n.seq AND r.seq = n.seq)),
named AS (UPDATE chargehand_live t SET error = c.spawned_by FROM c WHERE t.seq = c.seq)
INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due) SELECT seq, 0, -3, true, true, true FROM c

-- name: add_sequences
INSERT INTO chargehand_sequence (queue, sequence, job)
SELECT DISTINCT queue, {lookup sequence}, 0 FROM json_to_recordset($1::json) AS e(queue text, sequence text)
WHERE sequence IS NOT NULL ORDER BY 1, 2
ON CONFLICT DO NOTHING

-- name: lock_sequences
-- The order within a sequence is the order of these locks, and so of the commits.
SELECT FROM chargehand_sequence s
WHERE (queue, sequence) IN (
  SELECT queue, {lookup sequence} FROM json_to_recordset($1::json) AS e(queue text, sequence text)
  WHERE sequence IS NOT NULL)
ORDER BY queue, sequence FOR UPDATE

-- name: follow_sequence
-- A new job of a sequence waits for the one before it, which was added here, or else is looked at later. If the last one is
-- queued again here, too, it keeps what it waits for: the first of these waits for the same.
WITH n AS MATERIALIZED (
  SELECT j.seq, s.queue, s.sequence, s.job AS last, lag(j.seq) OVER (PARTITION BY s.queue, s.sequence ORDER BY j.seq) AS before
  FROM json_to_recordset($1::json) AS e(id text)
    CROSS JOIN LATERAL (SELECT seq, queue, sequence FROM chargehand_job WHERE id = e.id OFFSET 0) AS j
    CROSS JOIN LATERAL (
      SELECT * FROM chargehand_sequence WHERE queue = j.queue AND sequence = {lookup j.sequence} OFFSET 0) AS s
  WHERE (SELECT t.waits FROM chargehand_live t WHERE t.seq = j.seq) = 'sequence'),
edges AS (
  INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due)
  SELECT seq, coalesce(before, last), -1, false, true, before IS NULL FROM n
  WHERE before IS NOT NULL OR last > 0 AND last NOT IN (SELECT seq FROM n)
  UNION
  SELECT n.seq, g.predecessor, -1, false, true, true FROM n JOIN chargehand_edge g ON g.job = n.last AND g.nr = -1 AND g.open
  WHERE n.before IS NULL AND n.last IN (SELECT seq FROM n) AND g.predecessor NOT IN (SELECT seq FROM n)
  ON CONFLICT (job, nr, predecessor) DO UPDATE SET open = true, due = excluded.due)
UPDATE chargehand_sequence s SET job = l.seq
FROM (SELECT queue, sequence, max(seq) AS seq FROM n GROUP BY 1, 2) AS l
WHERE s.queue = l.queue AND s.sequence = l.sequence

-- name: break_cycles
-- A job of a sequence that is queued again does not wait for one that waits for it. A circle has a job that waits for a
-- later one (`up`): there are few, so that it is soon known that there is no circle, however long the sequence is.
WITH RECURSIVE n AS MATERIALIZED (
  SELECT j.seq FROM json_to_recordset($1::json) AS e(id text) JOIN chargehand_job j ON j.id = e.id),
w(seq) AS (
  SELECT seq FROM n
  UNION
  SELECT g.predecessor FROM w JOIN chargehand_edge g ON g.job = w.seq WHERE g.open),
up AS MATERIALIZED (
  SELECT DISTINCT g.job FROM w JOIN chargehand_edge g ON g.job = w.seq WHERE g.open AND g.predecessor > g.job),
c(start, seq) AS (
  SELECT g.job, g.predecessor FROM up JOIN chargehand_edge g ON g.job = up.job WHERE g.open
  UNION
  SELECT c.start, g.predecessor FROM c JOIN chargehand_edge g ON g.job = c.seq WHERE g.open),
r(start, seq) AS (
  SELECT g.job, g.predecessor FROM n JOIN chargehand_edge g ON g.job = n.seq WHERE g.nr = -1 AND g.open
    AND EXISTS (SELECT FROM c WHERE c.seq = c.start)
  UNION
  SELECT r.start, g.predecessor FROM r JOIN chargehand_edge g ON g.job = r.seq WHERE g.open)
DELETE FROM chargehand_edge WHERE nr = -1 AND job IN (SELECT start FROM r WHERE seq = start)

-- name: wait
-- Whether a job of a sequence waits is known only now.
UPDATE chargehand_live t SET waits = CASE
  WHEN EXISTS (SELECT FROM chargehand_edge g WHERE g.job = t.seq AND g.open) THEN 'jobs' WHEN run_at_ms > {now} THEN 'time' END
WHERE waits = 'sequence' AND seq = ANY (ARRAY(
  SELECT j.seq FROM json_to_recordset($2::json) AS e(id text)
    CROSS JOIN LATERAL (SELECT seq FROM chargehand_job WHERE id = e.id OFFSET 0) AS j))

-- name: cancel_added
-- Those of these jobs ($2) that were added to a flow ($3) that is being cancelled are cancelled, too. It begins with those flows: as a rule
-- there are none, and no job and no edge is read, nor even the ids. (Without `EXISTS`, tested once, a table may be read in vain.)
WITH f AS MATERIALIZED (
  SELECT id FROM json_array_elements_text($3::json) AS e(id) WHERE (SELECT cancel_ms FROM chargehand_flow WHERE id = e.id) IS NOT NULL),
h AS MATERIALIZED (
  SELECT t.* FROM f CROSS JOIN (SELECT DISTINCT id FROM json_array_elements_text($2::text::json) AS e(id)) AS e
    CROSS JOIN LATERAL (SELECT seq FROM chargehand_job WHERE id = e.id AND chargehand_job.flow = f.id OFFSET 0) AS j
    CROSS JOIN LATERAL (SELECT * FROM chargehand_live WHERE seq = j.seq AND claim IS NULL OFFSET 0) AS t),
gone AS (DELETE FROM chargehand_live WHERE seq = ANY (ARRAY(SELECT seq FROM h)) AND EXISTS (SELECT FROM h)),
edges AS (
  UPDATE chargehand_edge SET due = true
  WHERE open AND predecessor = ANY (ARRAY(SELECT seq FROM h)) AND EXISTS (SELECT FROM h))
INSERT INTO chargehand_end (seq, finished_ms, run_at_ms, attempts, crashes, interruptions, queue, state, reason, flow)
SELECT seq, {now}, run_at_ms, 0, 0, 0, queue, 'cancelled', 'cancelled', flow FROM h

-- name: once
-- Takes a key for a time, for a job that was added. Returns nothing if another job has taken it meanwhile.
INSERT INTO chargehand_once (queue, key, until_ms, job) VALUES ($2, {lookup $3::text}, {now} + $4::bigint, $5)
ON CONFLICT (queue, key) DO UPDATE SET until_ms = excluded.until_ms, job = excluded.job
WHERE chargehand_once.until_ms <= {now} OR chargehand_once.job = excluded.job
RETURNING job

-- name: once_by
-- The job for which a key is taken for a time.
SELECT job FROM chargehand_once WHERE queue = $2 AND key = {lookup $3::text} AND until_ms > {now}

-- name: withdraw
-- Removes a job that was added although its key was taken meanwhile.
WITH j AS (DELETE FROM chargehand_job WHERE id = $1 RETURNING seq),
live AS (DELETE FROM chargehand_live WHERE seq IN (SELECT seq FROM j)),
tags AS (DELETE FROM chargehand_tag WHERE job IN (SELECT seq FROM j))
DELETE FROM chargehand_edge WHERE job IN (SELECT seq FROM j)

-- name: holder
-- The job that has a key, and whether it is not claimed. A claimed one is not locked: the transaction may be one of a
-- caller, and last long, and the outcome of the job must not wait for it.
SELECT j.id, t.seq, t.claim IS NULL FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq
WHERE t.queue = $1 AND t.key = {lookup $2::text}

-- name: lock_holder
-- Nobody claims the job while this transaction lasts. Returns nothing if somebody has.
SELECT seq FROM chargehand_live WHERE seq = $1::bigint AND claim IS NULL FOR UPDATE

-- name: replace
WITH e AS MATERIALIZED (
  SELECT coalesce(run_at_ms, {now} + delay_ms) AS at, {now} + expires_ms AS expires_at_ms, payload, label, tags, meta,
    traceparent
  FROM json_to_record($2::json) AS e(run_at_ms bigint, delay_ms bigint, expires_ms bigint, payload text, label text,
    tags text, meta text, traceparent text)),
job AS (
  UPDATE chargehand_job j SET payload = e.payload, label = e.label, tags = e.tags, run_at_ms = e.at,
    expires_at_ms = e.expires_at_ms, meta = e.meta, traceparent = e.traceparent
  FROM e WHERE j.seq = $3::bigint),
tags AS (DELETE FROM chargehand_tag WHERE job = $3::bigint)
UPDATE chargehand_live t SET run_at_ms = e.at, expires_at_ms = e.expires_at_ms,
  waits = CASE WHEN waits = 'jobs' THEN 'jobs' WHEN e.at > {now} THEN 'time' WHEN waits = 'limit' THEN 'limit' END
FROM e WHERE t.seq = $3::bigint

-- name: accepted
-- Those of these outcomes that were accepted.
SELECT x.seq, x.claim FROM json_to_recordset($1::json) AS e(parent bigint, claim bigint, becomes text)
  JOIN chargehand_end x ON x.seq = e.parent AND x.claim IS NOT DISTINCT FROM e.claim
WHERE x.state = coalesce(e.becomes, 'done')

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

-- name: tag_one
INSERT INTO chargehand_tag (tag, job)
SELECT DISTINCT tag, seq FROM chargehand_job CROSS JOIN LATERAL json_array_elements_text(tags::json) AS tag
WHERE seq = $1::bigint
ON CONFLICT DO NOTHING

-- name: alias
-- The job that has the key, or for which it is taken for a time. In place of a child it counts as one, unless it is one, or
-- has ended badly: its ordinal is between those of the children before and after (`model.flows.ordinal_between`).
WITH e AS MATERIALIZED (
  SELECT e.*, max(j.seq) OVER (PARTITION BY e.spawned_by ORDER BY e.nr) AS before, min(j.seq) OVER (PARTITION BY e.spawned_by) AS own
  FROM ROWS FROM (json_to_recordset($2::json) AS (
      id text, queue text, key text, parent bigint, claim bigint, spawned_by text)) WITH ORDINALITY AS e(
      id, queue, key, parent, claim, spawned_by, nr)
    LEFT JOIN LATERAL (SELECT seq FROM chargehand_job WHERE id = e.id OFFSET 0) AS j ON true),
h AS MATERIALIZED (
  SELECT e.*, h.job FROM e CROSS JOIN LATERAL (SELECT coalesce(
    (SELECT t.seq FROM chargehand_live t WHERE t.queue = e.queue AND t.key = {lookup e.key}),
    (SELECT j.seq FROM chargehand_once o CROSS JOIN LATERAL (SELECT seq FROM chargehand_job WHERE id = o.job OFFSET 0) AS j
      WHERE o.queue = e.queue AND o.key = {lookup e.key} AND o.until_ms > {now})) AS job OFFSET 0) AS h
  WHERE e.key IS NOT NULL AND h.job IS NOT NULL AND (SELECT j.seq FROM chargehand_job j WHERE j.id = e.id) IS NULL
    AND (e.parent IS NULL
      OR (SELECT x.seq FROM chargehand_end x WHERE x.seq = e.parent AND x.claim IS NOT DISTINCT FROM e.claim) IS NOT NULL)),
c AS MATERIALIZED (
  SELECT h.id, h.job, h.spawned_by, (coalesce(h.before, (
        SELECT max(c.seq) FROM chargehand_job c WHERE c.parent = h.spawned_by AND (h.own IS NULL OR c.seq < h.own)),
      h.parent) << 20) + h.nr + (SELECT count(*) FROM chargehand_alias a WHERE a.parent = h.spawned_by) AS ordinal
  FROM h
  WHERE h.spawned_by IS NOT NULL AND (SELECT x.state FROM chargehand_end x WHERE x.seq = h.job AND x.state <> 'done') IS NULL
    AND (SELECT j.parent FROM chargehand_job j WHERE j.seq = h.job) IS DISTINCT FROM h.spawned_by)
INSERT INTO chargehand_alias (id, job, parent, ordinal)
SELECT h.id, h.job, c.spawned_by, c.ordinal FROM h LEFT JOIN c ON c.id = h.id
ON CONFLICT DO NOTHING

-- name: alias_to
-- Likewise for one job, whose parent ($3, $4) may be null.
INSERT INTO chargehand_alias (id, job, parent, ordinal)
SELECT $1, j.seq, CASE WHEN bad.state IS NULL THEN $3 END, CASE WHEN bad.state IS NULL AND $3 IS NOT NULL THEN (
    coalesce((SELECT max(c.seq) FROM chargehand_job c WHERE c.parent = $3), $4::bigint) << 20)
    + 1 + (SELECT count(*) FROM chargehand_alias a WHERE a.parent = $3) END
FROM chargehand_job j LEFT JOIN LATERAL (
  SELECT x.state FROM chargehand_end x WHERE x.seq = j.seq AND x.state <> 'done'
  UNION ALL SELECT '' WHERE j.parent = $3 LIMIT 1) AS bad ON true
WHERE j.id = $2 ON CONFLICT DO NOTHING

-- name: taken
-- The job that has the id, or the key; null if the holder of the key has ended meanwhile.
SELECT coalesce(
  (SELECT j.id FROM chargehand_job j WHERE j.id = e.id),
  (SELECT j.id FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq
    WHERE t.queue = e.queue AND t.key = {lookup e.key}),
  (SELECT o.job FROM chargehand_once o WHERE o.queue = e.queue AND o.key = {lookup e.key} AND o.until_ms > {now}))
FROM ROWS FROM (json_to_recordset($2::json) AS (id text, queue text, key text))
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
