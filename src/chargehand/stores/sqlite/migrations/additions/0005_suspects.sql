-- Jobs that a node had when it died unasked, until they have finished. Usually empty. Version 0.1.0 ignores it.

CREATE TABLE chargehand_suspect (
  job      INTEGER PRIMARY KEY,  -- chargehand_job.seq, which is never reused
  since_ms INTEGER NOT NULL
);
