-- What is kept of a worker beyond the life of its node: health rows are wiped, and this is not. Version 0.1.0 ignores it.

CREATE TABLE chargehand_worker (
  component      TEXT PRIMARY KEY,
  created_ms     INTEGER NOT NULL,             -- when a node first wrote the health of this component
  written_ms     INTEGER,                      -- when the columns below were written; null: never
  fingerprint    TEXT    NOT NULL DEFAULT '',  -- of the code and settings that crashed: others have another history
  charged        TEXT    NOT NULL DEFAULT '[]',  -- a JSON array: the times (ms) of the charged crashes
  streak         INTEGER NOT NULL DEFAULT 0,   -- crashes in a row, which determine the backoff
  rested_ms      INTEGER,                      -- when the streak was last reset by healthy running
  restarts       INTEGER NOT NULL DEFAULT 0,   -- since the last reset, restart by an operator, or healthy running
  restarts_total INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
