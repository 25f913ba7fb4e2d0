-- Who may do what, and who did what. No claim looks at any of these tables.

CREATE TABLE chargehand_key (
  id         TEXT PRIMARY KEY,
  name       TEXT    NOT NULL,
  digest     TEXT    NOT NULL UNIQUE,           -- SHA-256 of the key, which itself is nowhere kept
  scopes     TEXT    NOT NULL,                  -- JSON: an array of words
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  used_ms    INTEGER,
  revoked_ms INTEGER
) WITHOUT ROWID;
-- A name can be given again once its key is revoked.
CREATE UNIQUE INDEX chargehand_key_name ON chargehand_key (name) WHERE revoked_ms IS NULL;

CREATE TABLE chargehand_session (
  digest     TEXT PRIMARY KEY,                  -- SHA-256 of the cookie
  key        TEXT    NOT NULL,
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX chargehand_session_expires ON chargehand_session (expires_ms);

CREATE TABLE chargehand_operation (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,     -- order of arrival, never used again: pages go on from it
  at_ms  INTEGER NOT NULL,
  who    TEXT    NOT NULL,
  verb   TEXT    NOT NULL,
  target TEXT    NOT NULL,
  detail TEXT,
  origin TEXT
);
CREATE INDEX chargehand_operation_at ON chargehand_operation (at_ms);
CREATE INDEX chargehand_operation_target ON chargehand_operation (target);

CREATE TABLE chargehand_remembered (
  caller TEXT    NOT NULL,
  key    TEXT    NOT NULL,
  digest TEXT    NOT NULL,
  status INTEGER NOT NULL,
  body   TEXT    NOT NULL,
  at_ms  INTEGER NOT NULL,
  PRIMARY KEY (caller, key)
);
CREATE INDEX chargehand_remembered_at ON chargehand_remembered (at_ms);

-- Written by whoever wants to know whether it can be.
CREATE TABLE chargehand_probe (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  at_ms INTEGER NOT NULL
);
