-- What the node knows of its crews and workers, for readers in other processes. No claim looks at any of these tables,
-- so that nothing written here can make claiming slow.

-- A count that a person set; the registration of another configured count forgets it.
ALTER TABLE chargehand_crew ADD COLUMN scaled INTEGER;

-- A projection: written over and over, wiped at every start and clean stop of its node, and never the truth.
CREATE TABLE chargehand_health (
  node              TEXT    NOT NULL,
  component         TEXT    NOT NULL,
  status            TEXT    NOT NULL,
  flags             TEXT    NOT NULL,           -- JSON: an array of words
  reason            TEXT,
  pid               INTEGER,
  pid_start         INTEGER,                    -- in the kernel's ticks: a pid alone may be somebody else's by now
  incarnation       TEXT,
  current_job       TEXT,
  last_heartbeat_ms INTEGER,
  restart_count     INTEGER NOT NULL,
  last_restart_ms   INTEGER,
  exit_code         INTEGER,
  signal            INTEGER,
  created_at_ms     INTEGER NOT NULL,
  metadata          TEXT    NOT NULL,           -- JSON
  PRIMARY KEY (node, component)
) WITHOUT ROWID;

-- There are few of these (they are pruned by age and count), so one index is enough: the order in which they are read
-- and pruned. The long texts come last, so that whoever looks for a crew's or a job's need not read through them.
CREATE TABLE chargehand_crash (
  seq         INTEGER PRIMARY KEY,              -- order of arrival: two may have died in the same millisecond
  id          TEXT    NOT NULL UNIQUE,          -- made by whoever reports, so that a repeated report is one
  node        TEXT    NOT NULL,
  component   TEXT    NOT NULL,
  crew        TEXT    NOT NULL,
  job         TEXT,
  at_ms       INTEGER NOT NULL,
  incarnation TEXT    NOT NULL,
  pid         INTEGER,
  reason      TEXT    NOT NULL,
  exit_code   INTEGER,
  signal      INTEGER,
  memory      INTEGER,
  uptime_ms   INTEGER,
  charged     INTEGER NOT NULL,
  follows     TEXT    NOT NULL,
  text        TEXT    NOT NULL,
  stacks      TEXT    NOT NULL,
  lines       TEXT    NOT NULL,                 -- JSON: an array of texts
  frames      TEXT    NOT NULL                  -- JSON: an array of texts
);
CREATE INDEX chargehand_crash_at ON chargehand_crash (at_ms);

-- Not a part of the health rows: those are wiped, and this must outlive the node.
CREATE TABLE chargehand_given_up (
  component   TEXT PRIMARY KEY,
  crew        TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  fingerprint TEXT    NOT NULL,                 -- of the handler's code and configuration: another one clears the mark
  at_ms       INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE chargehand_history (
  timestamp_ms INTEGER PRIMARY KEY,             -- one a moment, so that the last one's time says where to read on
  components   TEXT    NOT NULL                 -- JSON: an array of objects
);
