-- Every table carries the prefix: an application may keep its own tables in the same file.

CREATE TABLE chargehand_job (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of arrival, and the job's short name; never used again,
                                                    -- so that no old claim can mean a newer job
  id            TEXT    NOT NULL UNIQUE,
  queue         TEXT    NOT NULL,
  state         TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
  waits_for     TEXT    CHECK (waits_for IN ('time', 'limit')),  -- why a queued job is not claimed yet; null: it may be
  priority      INTEGER NOT NULL DEFAULT 0,
  run_at_ms     INTEGER NOT NULL,
  fence         INTEGER NOT NULL DEFAULT 0,     -- +1 with every claim, never reset
  attempts      INTEGER NOT NULL DEFAULT 0,
  max_attempts  INTEGER NOT NULL,
  crashes       INTEGER NOT NULL DEFAULT 0,
  interruptions INTEGER NOT NULL DEFAULT 0,
  timeout_ms    INTEGER,
  key           TEXT,
  limit_key     TEXT,                           -- jobs that share it are limited together, across the cluster
  node          TEXT,                           -- who holds it: the node by name,
  life          TEXT,                           -- which life of that node,
  worker        TEXT,                           -- and the worker, once it has had the job for a moment
  created_ms    INTEGER NOT NULL,
  started_ms    INTEGER,
  finished_ms   INTEGER,
  label         TEXT,
  reason        TEXT,
  progress      TEXT,
  payload       TEXT    NOT NULL,
  result        TEXT,
  error         TEXT,
  CHECK ((state = 'running') = (life IS NOT NULL))
);

-- What a claim looks at: due jobs only, in the order in which they are taken. (State and reason are in it so that
-- counting needs no look at the table.)
CREATE INDEX chargehand_job_ready ON chargehand_job (queue, priority DESC, seq, state, waits_for)
  WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX chargehand_job_future ON chargehand_job (queue, run_at_ms)
  WHERE state = 'queued' AND waits_for = 'time';
CREATE INDEX chargehand_job_limited ON chargehand_job (queue, limit_key)
  WHERE state = 'queued' AND waits_for = 'limit';
CREATE INDEX chargehand_job_running ON chargehand_job (node, life, queue)
  WHERE state = 'running';
CREATE INDEX chargehand_job_finished ON chargehand_job (queue, state, finished_ms)
  WHERE state IN ('done', 'failed', 'cancelled');
CREATE UNIQUE INDEX chargehand_job_key ON chargehand_job (queue, key)
  WHERE key IS NOT NULL AND state IN ('queued', 'running');

CREATE TABLE chargehand_attempt (
  job         INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  node        TEXT    NOT NULL,
  worker      TEXT,
  pid         INTEGER,
  started_ms  INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  outcome     TEXT    NOT NULL,
  error       TEXT,
  PRIMARY KEY (job, fence)
) WITHOUT ROWID;

CREATE TABLE chargehand_crew (
  name          TEXT PRIMARY KEY,
  queue         TEXT    NOT NULL,
  handler       TEXT    NOT NULL,
  workers       INTEGER NOT NULL,
  max_attempts  INTEGER NOT NULL,
  timeout_ms    INTEGER,
  priority      INTEGER NOT NULL DEFAULT 0,
  registered_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE chargehand_pause (
  scope    TEXT PRIMARY KEY,                    -- a crew's name, or * for all
  who      TEXT    NOT NULL,
  reason   TEXT,
  since_ms INTEGER NOT NULL,
  until_ms INTEGER
) WITHOUT ROWID;

CREATE TABLE chargehand_node (
  name          TEXT PRIMARY KEY,
  life          TEXT    NOT NULL,
  started_ms    INTEGER NOT NULL,
  lease_until_ms INTEGER,                       -- for stores that several nodes share; null: never runs out
  about         TEXT    NOT NULL                -- JSON: boot, pid, start time, version
) WITHOUT ROWID;

-- A concurrency limit: of a queue (key '') or of one key in it.
CREATE TABLE chargehand_limit (
  queue   TEXT    NOT NULL,
  key     TEXT    NOT NULL DEFAULT '',
  allowed INTEGER NOT NULL,
  running INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE TABLE chargehand_recurring (
  name          TEXT PRIMARY KEY,
  queue         TEXT    NOT NULL,
  schedule      TEXT    NOT NULL,
  payload       TEXT    NOT NULL,
  next_run_ms   INTEGER NOT NULL,
  last_job      TEXT
) WITHOUT ROWID;
