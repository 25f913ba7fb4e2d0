-- Statements about edges (who waits for whom) and flows. Lists of numbers arrive as bigint[].

-- name: followed
-- A row if one waits for one of these jobs.
SELECT 1 FROM chargehand_edge WHERE predecessor = ANY ($1::bigint[]) AND open LIMIT 1

-- name: lock_followers_of
SELECT t.seq
FROM (SELECT DISTINCT job FROM chargehand_edge WHERE predecessor = ANY ($1::bigint[]) AND open ORDER BY job) AS o
  CROSS JOIN LATERAL (SELECT seq FROM chargehand_live WHERE seq = o.job AND waits = 'jobs' FOR UPDATE) AS t

-- name: close
-- Follows `settle`: closes the edges to jobs that have ended with these claims ($1, $2), and locks their followers. Edges of
-- a follower that somebody else has locked, and of one that fails, become due. It waits for nobody, and returns whether
-- there are edges to be looked at.
WITH x AS MATERIALIZED (
  SELECT x.seq, x.state FROM unnest($1::bigint[], $2::bigint[]) AS e(seq, claim) CROSS JOIN LATERAL (
    SELECT seq, state FROM chargehand_end WHERE seq = e.seq AND claim IS NOT DISTINCT FROM e.claim) AS x),
w AS MATERIALIZED (
  SELECT g.job, g.predecessor, g.nr, g.strict AND x.state <> 'done' AS fails
  FROM x CROSS JOIN LATERAL (SELECT * FROM chargehand_edge WHERE predecessor = x.seq OFFSET 0) AS g
  WHERE g.open AND NOT g.due),
held AS MATERIALIZED (
  SELECT t.seq FROM (SELECT DISTINCT job FROM w ORDER BY job) AS o CROSS JOIN LATERAL (
    SELECT seq FROM chargehand_live WHERE seq = o.job AND waits = 'jobs' FOR UPDATE SKIP LOCKED) AS t),
c AS (
  UPDATE chargehand_edge g SET open = NOT d.ends, due = NOT d.ends
  FROM (SELECT w.*, NOT fails AND job IN (SELECT seq FROM held) AS ends FROM w) AS d
  WHERE g.job = d.job AND g.nr = d.nr AND g.predecessor = d.predecessor RETURNING g.due)
SELECT coalesce(bool_or(due), false) OR EXISTS (SELECT FROM chargehand_edge WHERE due) FROM c

-- name: release
-- Lets those followers of these jobs ($2), and those of the jobs themselves ($3), be claimed that wait for none any more.
-- In a statement of its own after the followers were locked: it must see what others have closed before.
UPDATE chargehand_live t SET error = NULL, waits = CASE WHEN run_at_ms > {now} THEN 'time' END
WHERE seq IN (SELECT job FROM chargehand_edge WHERE predecessor = ANY ($2::bigint[]) UNION ALL SELECT unnest($3::bigint[]))
  AND waits = 'jobs'
  AND (SELECT predecessor FROM chargehand_edge o WHERE o.job = t.seq AND o.open ORDER BY o.predecessor DESC LIMIT 1) IS NULL
RETURNING queue, rank, place, seq, waits IS NULL

-- name: due
-- Edges to be looked at, after a position, that nobody else looks at.
SELECT job, nr, predecessor, strict FROM chargehand_edge
WHERE due AND (job, nr, predecessor) > ($1::bigint, $2::int, $3::bigint)
ORDER BY job, nr, predecessor LIMIT $4::bigint FOR UPDATE SKIP LOCKED

-- name: lock_followers
-- `error` names what a job was enqueued with that does not exist.
SELECT seq, waits = 'jobs', error FROM chargehand_live WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE

-- name: lock_followers_at_once
SELECT seq, waits = 'jobs', error FROM chargehand_live WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE SKIP LOCKED

-- name: lock_predecessors
-- These have not ended, and cannot end before this transaction has. The order is that of `lock_with_followers`.
SELECT seq FROM chargehand_live WHERE seq = ANY ($1::bigint[]) ORDER BY waits IS NOT DISTINCT FROM 'jobs', seq FOR KEY SHARE

-- name: lock_predecessors_at_once
SELECT seq FROM chargehand_live WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR KEY SHARE SKIP LOCKED

-- name: predecessors
-- What is known of these jobs: whether they live, or how they ended. Nothing of those that were deleted.
SELECT j.seq, t.seq IS NOT NULL, j.id, coalesce(j.label, j.queue), x.state, CASE WHEN x.state = 'failed' THEN x.error END
FROM unnest($1::bigint[]) AS e(seq) JOIN chargehand_job j ON j.seq = e.seq LEFT JOIN chargehand_live t ON t.seq = j.seq
  LEFT JOIN chargehand_end x ON x.seq = j.seq

-- name: children
-- The children of these predecessors ($2), and the jobs that have the keys of children, for each job ($1) that waits for
-- one, unless it descends from that itself.
WITH e AS MATERIALIZED (
  SELECT e.job, r.seq AS root, r.id FROM unnest($1::bigint[], $2::bigint[]) AS e(job, root)
    JOIN chargehand_job r ON r.seq = e.root
  WHERE ((SELECT c.seq FROM chargehand_job c WHERE c.parent = r.id LIMIT 1) IS NOT NULL
      OR (SELECT a.job FROM chargehand_alias a WHERE a.parent = r.id LIMIT 1) IS NOT NULL)
    AND NOT EXISTS (
      WITH RECURSIVE up(id) AS (
        SELECT parent FROM chargehand_job WHERE seq = e.job
        UNION
        SELECT u.parent FROM up CROSS JOIN LATERAL (SELECT seq, parent FROM chargehand_job WHERE id = up.id OFFSET 0) AS j
          CROSS JOIN LATERAL (
            SELECT j.parent UNION ALL SELECT a.parent FROM chargehand_alias a WHERE a.job = j.seq OFFSET 0) AS u)
      SELECT FROM up WHERE up.id = r.id))
SELECT e.job, e.root, c.seq, NULL::bigint FROM e JOIN chargehand_job c ON c.parent = e.id
UNION
SELECT e.job, e.root, a.job, min(a.ordinal) FROM e JOIN chargehand_alias a ON a.parent = e.id
WHERE a.job <> e.job AND (SELECT j.parent FROM chargehand_job j WHERE j.seq = a.job) IS DISTINCT FROM e.id
GROUP BY 1, 2, 3

-- name: living
-- Those of these jobs that have not ended.
SELECT seq FROM chargehand_live WHERE seq = ANY ($1::bigint[])

-- name: before_in_sequence
-- What jobs that have ended without being started still waited for in their sequences.
SELECT job, predecessor FROM chargehand_edge WHERE job = ANY ($1::bigint[]) AND nr = -1 AND open

-- name: add_due
-- A job does not wait for one that waits for it; one that has ended, or does now (`over`), only says what the next of its
-- sequence waits for.
INSERT INTO chargehand_edge (job, predecessor, nr, strict, open, due, ordinal)
SELECT DISTINCT ON (job, nr, predecessor) job, predecessor, nr, strict, true, true, ordinal
FROM json_to_recordset($1::json) AS e(
  job bigint, predecessor bigint, nr int, strict boolean, over boolean, ordinal bigint)
WHERE e.over OR (SELECT t.seq FROM chargehand_live t WHERE t.seq = e.job) IS NULL OR NOT EXISTS (
  WITH RECURSIVE r(seq) AS (
    SELECT e.predecessor UNION SELECT g.predecessor FROM r JOIN chargehand_edge g ON g.job = r.seq WHERE g.open)
  SELECT FROM r WHERE r.seq = e.job)
ON CONFLICT (job, nr, predecessor) DO UPDATE SET open = true, due = true
  WHERE NOT chargehand_edge.open AND chargehand_edge.nr >= 0

-- name: untangle
-- After `add_due`: jobs that would wait for each other, because each is in place of a child, do not.
DELETE FROM chargehand_edge g USING json_to_recordset($1::json) AS e(job bigint, predecessor bigint, nr int)
WHERE g.job = e.job AND g.nr = e.nr AND g.predecessor = e.predecessor AND g.open AND EXISTS (
  WITH RECURSIVE r(seq) AS (
    SELECT g.predecessor UNION SELECT o.predecessor FROM r JOIN chargehand_edge o ON o.job = r.seq WHERE o.open)
  SELECT FROM r WHERE r.seq = g.job)

-- name: looked_at
-- `open` is what was found.
UPDATE chargehand_edge g SET open = e.open, due = false
FROM json_to_recordset($1::json) AS e(job bigint, nr int, predecessor bigint, open boolean)
WHERE g.job = e.job AND g.nr = e.nr AND g.predecessor = e.predecessor

-- name: fail
-- Ends jobs that never ran, because of a predecessor.
WITH e AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::json) AS e(seq bigint, reason text, error text) ORDER BY seq),
h AS MATERIALIZED (
  SELECT t.*, e.reason, e.error AS why FROM e CROSS JOIN LATERAL (
    SELECT * FROM chargehand_live WHERE seq = e.seq AND waits = 'jobs' FOR UPDATE) AS t),
gone AS (DELETE FROM chargehand_live WHERE seq = ANY (ARRAY(SELECT seq FROM h))),
fin AS (
  INSERT INTO chargehand_end (seq, finished_ms, started_ms, run_at_ms, cancel_ms, retried_ms, attempts, crashes,
    interruptions, queue, flow, state, reason, failed_in, error)
  SELECT seq, {now}, started_ms, run_at_ms, cancel_ms, retried_ms, attempts, crashes, interruptions, queue, flow, 'failed',
    reason, failed_in, why FROM h)
SELECT seq, flow FROM h

-- name: below
-- The edges to these jobs, and to all that fail because of them, with the id and the name of each predecessor; without
-- those that are due, which others may have locked. (OFFSET 0: each level of a long chain uses the indexes.)
WITH RECURSIVE n(seq) AS (
  SELECT unnest($1::bigint[])
  UNION
  SELECT f.job FROM n CROSS JOIN LATERAL (
    SELECT g.job FROM chargehand_edge g
    WHERE g.predecessor = n.seq AND g.open AND NOT g.due AND g.strict OFFSET 0) AS f)
SELECT g.job, g.nr, n.seq, j.id, j.name FROM n
  CROSS JOIN LATERAL (
    SELECT job, nr FROM chargehand_edge WHERE predecessor = n.seq AND open AND NOT due AND strict OFFSET 0) AS g
  CROSS JOIN LATERAL (
    SELECT id, coalesce(label, queue) AS name FROM chargehand_job WHERE seq = n.seq OFFSET 0) AS j
LIMIT $2::bigint

-- name: mark_due
UPDATE chargehand_edge SET due = true WHERE predecessor = ANY ($1::bigint[]) AND open AND NOT due

-- name: idle
-- Those of these flows that may have ended: none of their jobs waits to be claimed.
SELECT e.flow FROM json_array_elements_text($1::json) AS e(flow)
WHERE (SELECT seq FROM chargehand_live t WHERE t.flow = e.flow AND t.claim IS NULL ORDER BY seq DESC LIMIT 1) IS NULL

-- name: begin
INSERT INTO chargehand_flow (id, name, created_ms, arrival, on_end) VALUES ($2, $3, {now}, $4::boolean, $5)
ON CONFLICT (id) DO NOTHING RETURNING id

-- name: lock_flows
-- Waits for others that end or change the flow, but not for those that add jobs to it. The ids are sorted. Here and below,
-- each flow is looked up by its id: an index of all running ones would be read to its end.
SELECT f.id FROM unnest($1::text[]) AS e(id) CROSS JOIN LATERAL (
  SELECT id FROM chargehand_flow WHERE id = e.id FOR NO KEY UPDATE) AS f

-- name: ended
-- Those of these flows without a live job, to which nobody adds jobs now. Somebody may have added one since the statement
-- began: `count_ends`, after the lock, sees it.
WITH n AS MATERIALIZED (
  SELECT e.id FROM unnest($2::text[]) AS e(id)
  WHERE (SELECT seq FROM chargehand_live t WHERE t.flow = e.id ORDER BY seq DESC LIMIT 1) IS NULL)
SELECT f.id, f.name, f.created_ms, f.cancel_ms IS NOT NULL, f.ends + 1, f.on_end, {now} FROM n CROSS JOIN LATERAL (
  SELECT * FROM chargehand_flow WHERE id = n.id FOR UPDATE SKIP LOCKED) AS f
WHERE f.ended_ms IS NULL

-- name: count_ends
-- The ends of jobs of those of these flows without a live job. One job that has not ended stands for all others.
WITH n AS MATERIALIZED (
  SELECT e.flow, (SELECT seq FROM chargehand_live t WHERE t.flow = e.flow ORDER BY seq DESC LIMIT 1) AS lives
  FROM unnest($1::text[]) AS e(flow))
SELECT n.flow, x.state, CASE WHEN x.state <> 'done' THEN x.reason END, count(*)
FROM n CROSS JOIN LATERAL (SELECT state, reason FROM chargehand_end WHERE flow = n.flow OFFSET 0) AS x
WHERE n.lives IS NULL GROUP BY 1, 2, 3
UNION ALL
SELECT flow, 'queued', NULL, 1 FROM n WHERE lives IS NOT NULL

-- name: lock_idle
-- The last locks of a transaction, which waits for nobody: a flow to which somebody adds jobs is left out.
SELECT f.id, f.on_end IS NOT NULL FROM json_array_elements_text($1::json) AS e(id) CROSS JOIN LATERAL (
  SELECT id, on_end, ended_ms FROM chargehand_flow WHERE id = e.id FOR UPDATE SKIP LOCKED) AS f
WHERE f.ended_ms IS NULL

-- name: end_idle
-- Ends those of these flows without a live job that name no job for their end, as `model.flows.state_of` says. In a statement
-- after `lock_idle`, and only what that has locked: nobody has added a job that this statement does not see.
UPDATE chargehand_flow f SET ended_ms = {now}, ends = f.ends + 1, on_end_job = NULL, state = CASE
  WHEN f.cancel_ms IS NOT NULL THEN 'cancelled'
  WHEN (SELECT x.state FROM chargehand_end x WHERE x.flow = f.id AND x.state = 'failed' LIMIT 1) IS NOT NULL THEN 'failed'
  WHEN (SELECT x.state FROM chargehand_end x WHERE x.flow = f.id AND x.state = 'cancelled' LIMIT 1) IS NOT NULL THEN 'cancelled'
  ELSE 'done' END
FROM json_array_elements_text($2::json) AS e(id)
WHERE f.id = e.id AND f.xmax = pg_current_xact_id()::xid AND (f.ended_ms IS NULL AND f.on_end IS NULL) IS TRUE
  AND (SELECT t.seq FROM chargehand_live t WHERE t.flow = e.id ORDER BY t.seq DESC LIMIT 1) IS NULL
RETURNING f.id

-- name: end
UPDATE chargehand_flow f SET ended_ms = e.ended_ms, ends = e.ends, state = e.state, on_end_job = e.on_end_job
FROM unnest($1::text[], $2::bigint[], $3::int[], $4::text[], $5::text[]) AS e(id, ended_ms, ends, state, on_end_job)
WHERE f.id = e.id

-- name: exists
SELECT id FROM chargehand_flow WHERE id = ANY ($1::text[])

-- name: change
-- Locks a flow for a change of all its jobs.
SELECT ended_ms IS NOT NULL, cancel_ms IS NOT NULL FROM chargehand_flow WHERE id = $1 FOR NO KEY UPDATE

-- name: shut
-- Waits for those that add jobs to a flow. Who comes later waits for this transaction, and sees what it has done.
SELECT id FROM chargehand_flow WHERE id = $1 FOR UPDATE

-- name: cancel
UPDATE chargehand_flow SET cancel_ms = coalesce(cancel_ms, {now}) WHERE id = $2 AND ended_ms IS NULL

-- name: uncancel
UPDATE chargehand_flow SET cancel_ms = NULL WHERE id = $1 AND cancel_ms IS NOT NULL

-- name: reopen
UPDATE chargehand_flow SET ended_ms = NULL, state = 'running' WHERE id = ANY ($1::text[]) AND ended_ms IS NOT NULL

-- name: live_of
SELECT j.id FROM chargehand_live t JOIN chargehand_job j ON j.seq = t.seq WHERE t.flow = $1 ORDER BY t.seq

-- name: bad_of
SELECT seq FROM chargehand_end WHERE flow = $1 AND state IN ('failed', 'cancelled') ORDER BY seq

-- name: ended_of
SELECT j.id FROM chargehand_end x JOIN chargehand_job j ON j.seq = x.seq WHERE x.flow = $1 ORDER BY x.seq LIMIT $2::bigint

-- name: delete_flow
DELETE FROM chargehand_flow f WHERE id = $1 AND NOT EXISTS (SELECT FROM chargehand_end x WHERE x.flow = f.id)
  AND NOT EXISTS (SELECT FROM chargehand_live t WHERE t.flow = f.id) RETURNING id

-- name: emptied
-- Flows without a job have no place: they are pruned by their age.
UPDATE chargehand_flow f SET place = NULL WHERE id = ANY ($1::text[]) AND ended_ms IS NOT NULL
  AND NOT EXISTS (SELECT FROM chargehand_end x WHERE x.flow = f.id)

-- name: idle_flows
-- Flows after a number that have not ended and have no live job, of the next $2.
SELECT seq, id, (SELECT t.seq FROM chargehand_live t WHERE t.flow = f.id ORDER BY t.seq DESC LIMIT 1) IS NULL,
  cancel_ms IS NOT NULL
FROM chargehand_flow f WHERE ended_ms IS NULL AND seq > $1::bigint ORDER BY seq LIMIT $2::bigint

-- name: forgotten
-- Open edges after a position whose predecessors have ended, of the next $4; and the position after these.
WITH g AS MATERIALIZED (
  SELECT job, predecessor, nr, due FROM chargehand_edge WHERE open AND (job, predecessor) > ($1::bigint, $2::bigint)
  ORDER BY job, predecessor LIMIT $3::bigint)
SELECT job, predecessor, NOT due AND (SELECT t.seq FROM chargehand_live t WHERE t.seq = predecessor) IS NULL FROM g
ORDER BY job, predecessor

-- name: mark_these_due
UPDATE chargehand_edge g SET due = true FROM unnest($1::bigint[], $2::bigint[]) AS e(job, predecessor)
WHERE g.job = e.job AND g.predecessor = e.predecessor AND g.open AND NOT g.due
