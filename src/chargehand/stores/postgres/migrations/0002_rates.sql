-- oldest: 1
-- Rates: how many jobs of a queue, and of a key in it, may be started within a period. Older code ignores them.

ALTER TABLE chargehand_crew ADD COLUMN rate text, ADD COLUMN rate_per_key text;  -- such as 600/min
ALTER TABLE chargehand_limit ADD COLUMN rate text, ADD COLUMN rate_per_key text;  -- all that hold, separated by commas

-- What was started at a time, of a queue (key '') or of one key in it, in the form in which chargehand_live has it.
CREATE TABLE chargehand_start (
  queue text   NOT NULL,
  key   text   NOT NULL,
  at_ms bigint NOT NULL,
  jobs  bigint NOT NULL,
  total bigint NOT NULL,  -- of these jobs and all before, so that those of a period need not be added up
  PRIMARY KEY (queue, key, at_ms)
);
CREATE INDEX chargehand_start_at ON chargehand_start (queue, at_ms);

-- The keys with jobs that were set aside because of the rate, and when to look at them again.
CREATE TABLE chargehand_opening (
  queue    text   NOT NULL,
  key      text   NOT NULL,
  opens_ms bigint NOT NULL,
  PRIMARY KEY (queue, key)
);
CREATE INDEX chargehand_opening_at ON chargehand_opening (queue, opens_ms);
