-- All of work: cancelling what runs, items that are found and not enqueued, limits, recurring jobs.

ALTER TABLE chargehand_job ADD COLUMN item TEXT;           -- what it is in the application's own tables
ALTER TABLE chargehand_job ADD COLUMN cancel_ms INTEGER;   -- somebody asked for its end while it was running
ALTER TABLE chargehand_job ADD COLUMN retried_ms INTEGER;  -- a person queued it again: what its item was done before
                                                           -- that no longer counts

-- The few that run, by what limits count; whoever wants those of one life, or those to be cancelled, looks through all of
-- them. (An index of its own for the latter would be weighed with every claim and every end.)
DROP INDEX chargehand_job_running;
CREATE INDEX chargehand_job_running ON chargehand_job (queue, limit_key, cancel_ms)
  WHERE state = 'running';
-- Those set aside, in the order in which they come back.
DROP INDEX chargehand_job_limited;
CREATE INDEX chargehand_job_limited ON chargehand_job (queue, limit_key, priority DESC, seq)
  WHERE state = 'queued' AND waits_for = 'limit';
-- The jobs of an item, by age. There is no state in it, so no claim and no end of a job has to touch it.
CREATE INDEX chargehand_job_item ON chargehand_job (queue, item)
  WHERE item IS NOT NULL;

ALTER TABLE chargehand_crew ADD COLUMN allowed INTEGER;
ALTER TABLE chargehand_crew ADD COLUMN allowed_per_key INTEGER;

-- What its crews say of a queue together. What runs is counted when it matters: a counter could drift.
DROP TABLE chargehand_limit;
CREATE TABLE chargehand_limit (
  queue           TEXT PRIMARY KEY,
  allowed         INTEGER,
  allowed_per_key INTEGER
) WITHOUT ROWID;

DROP TABLE chargehand_recurring;
CREATE TABLE chargehand_recurring (
  name        TEXT PRIMARY KEY,
  schedule    TEXT    NOT NULL,                 -- for whoever computes the next time
  job         TEXT    NOT NULL,                 -- JSON: the job without its id
  next_run_ms INTEGER NOT NULL,                 -- compared and moved on by whoever fires
  last_job    TEXT
) WITHOUT ROWID;
