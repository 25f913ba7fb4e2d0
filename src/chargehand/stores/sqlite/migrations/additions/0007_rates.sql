-- Rates: how many jobs of a queue, and of a key in it, may be started within a period. Older code ignores them.

ALTER TABLE chargehand_crew ADD COLUMN rate TEXT;          -- such as 600/min
ALTER TABLE chargehand_crew ADD COLUMN rate_per_key TEXT;

-- What its crews say of a queue together; such a queue has a row in chargehand_limit, too.
CREATE TABLE chargehand_rate (
  queue        TEXT PRIMARY KEY,
  rate         TEXT,  -- the rates that hold together, separated by commas
  rate_per_key TEXT
) WITHOUT ROWID;

-- What was started at a time, of a queue (key '') or of one key in it.
CREATE TABLE chargehand_start (
  queue TEXT    NOT NULL,
  key   TEXT    NOT NULL,
  at_ms INTEGER NOT NULL,
  jobs  INTEGER NOT NULL,
  total INTEGER NOT NULL,  -- of these jobs and all before, so that those of a period need not be added up
  PRIMARY KEY (queue, key, at_ms)
) WITHOUT ROWID;
CREATE INDEX chargehand_start_at ON chargehand_start (queue, at_ms);

-- The keys with jobs that were set aside because of the rate, and when to look at them again.
CREATE TABLE chargehand_opening (
  queue    TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  opens_ms INTEGER NOT NULL,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX chargehand_opening_at ON chargehand_opening (queue, opens_ms);
