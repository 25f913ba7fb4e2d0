-- Flows: jobs that wait for others, and what belongs together. Older code ignores it: to older code a job that waits for
-- others is one that it does not claim, and what it leaves undone is completed by the next node that knows flows.

ALTER TABLE chargehand_job ADD COLUMN flow TEXT;               -- chargehand_flow.id
ALTER TABLE chargehand_job ADD COLUMN parent TEXT;             -- the id of the job that spawned it
ALTER TABLE chargehand_job ADD COLUMN place INTEGER;           -- the order within a priority; null: the seq
ALTER TABLE chargehand_job ADD COLUMN share TEXT;              -- '': none, in a queue where others have one
ALTER TABLE chargehand_job ADD COLUMN sequence TEXT;
ALTER TABLE chargehand_job ADD COLUMN expires_at_ms INTEGER;   -- null: never, or it was started

-- A new value of waits_for. Making the table anew would copy all jobs. SQLite documents this way for a change that
-- leaves the rows as they are; the statements below change the schema, so that every connection reads it again.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema
SET sql = replace(sql, 'CHECK (waits_for IN (''time'', ''limit''))', 'CHECK (waits_for IN (''time'', ''limit'', ''jobs''))')
WHERE type = 'table' AND name = 'chargehand_job';
PRAGMA writable_schema = RESET;

-- The two orders in which jobs are taken: by their places.
DROP INDEX chargehand_job_ready;
CREATE INDEX chargehand_job_ready
  ON chargehand_job (queue, priority DESC, coalesce(place, seq), seq, state, waits_for)
  WHERE state = 'queued' AND waits_for IS NULL;
DROP INDEX chargehand_job_limited;
CREATE INDEX chargehand_job_limited ON chargehand_job (queue, limit_key, priority DESC, coalesce(place, seq), seq)
  WHERE state = 'queued' AND waits_for = 'limit';

-- All of these are empty, and cost nothing, for jobs without the option.
CREATE INDEX chargehand_job_following ON chargehand_job (queue) WHERE waits_for = 'jobs' AND state = 'queued';
CREATE INDEX chargehand_job_flow ON chargehand_job (flow, state, waits_for, reason) WHERE flow IS NOT NULL;
CREATE INDEX chargehand_job_parent ON chargehand_job (parent) WHERE parent IS NOT NULL;
CREATE INDEX chargehand_job_share ON chargehand_job (queue, priority, share, coalesce(place, seq))
  WHERE share IS NOT NULL AND state IN ('queued', 'running');
CREATE INDEX chargehand_job_expires ON chargehand_job (expires_at_ms)
  WHERE expires_at_ms IS NOT NULL AND state = 'queued';

CREATE TABLE chargehand_flow (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of arrival
  id         TEXT    NOT NULL UNIQUE,
  name       TEXT    NOT NULL,
  created_ms INTEGER NOT NULL,
  arrival    INTEGER NOT NULL,                   -- 1: its jobs are ordered by their own arrival
  place      INTEGER,                            -- that of its first job
  on_end     TEXT,                               -- JSON: the job to enqueue when it ends
  cancel_ms  INTEGER,
  ends       INTEGER NOT NULL DEFAULT 0,         -- how often it has ended
  ended_ms   INTEGER,
  state      TEXT    NOT NULL DEFAULT 'running',
  on_end_job TEXT                                -- the id of the job that its last end enqueued
);
CREATE INDEX chargehand_flow_running ON chargehand_flow (seq) WHERE ended_ms IS NULL;
CREATE INDEX chargehand_flow_empty ON chargehand_flow (ended_ms) WHERE place IS NULL AND ended_ms IS NOT NULL;

-- A job and one that it waits for, or waited for.
CREATE TABLE chargehand_edge (
  job         INTEGER NOT NULL,  -- chargehand_job.seq
  predecessor INTEGER NOT NULL,  -- chargehand_job.seq
  nr          INTEGER NOT NULL,  -- the position in `after` of the predecessor, or of what spawned it; -1: a sequence
  strict      INTEGER NOT NULL,  -- 1: the job fails if the predecessor does
  open        INTEGER NOT NULL,  -- 1: the predecessor has not ended
  PRIMARY KEY (job, nr, predecessor)
) WITHOUT ROWID;
CREATE INDEX chargehand_edge_predecessor ON chargehand_edge (predecessor, open, strict);
CREATE INDEX chargehand_edge_open ON chargehand_edge (job) WHERE open = 1;

-- The last job of each sequence.
CREATE TABLE chargehand_sequence (
  queue    TEXT    NOT NULL,
  sequence TEXT    NOT NULL,
  job      INTEGER NOT NULL,  -- chargehand_job.seq
  PRIMARY KEY (queue, sequence)
) WITHOUT ROWID;

-- Until when a key is taken, even if its job has ended or was pruned.
CREATE TABLE chargehand_once (
  queue    TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  until_ms INTEGER NOT NULL,
  job      TEXT    NOT NULL,  -- the id of the job
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX chargehand_once_until ON chargehand_once (until_ms);

-- What an attempt has left for the next one.
CREATE TABLE chargehand_kept (
  job   INTEGER PRIMARY KEY,  -- chargehand_job.seq
  state TEXT    NOT NULL      -- JSON
);

CREATE TRIGGER chargehand_job_delete AFTER DELETE ON chargehand_job BEGIN
  DELETE FROM chargehand_edge WHERE job = old.seq;
  DELETE FROM chargehand_edge WHERE predecessor = old.seq;
  DELETE FROM chargehand_kept WHERE job = old.seq;
  DELETE FROM chargehand_sequence WHERE queue = old.queue AND sequence = old.sequence AND job = old.seq;
END;
