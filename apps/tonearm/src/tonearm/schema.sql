-- Tonearm's tables: files, analysis results and requests. Chargehand stores the jobs in its own database.

CREATE TABLE folder (
  id INTEGER PRIMARY KEY,
  root BLOB NOT NULL UNIQUE,              -- absolute, as bytes: a file name need not be valid text
  mode TEXT NOT NULL DEFAULT 'none',      -- write mode: none, minimal, full
  onto TEXT NOT NULL DEFAULT '[]',        -- mappings onto standard tags, as JSON
  tier TEXT NOT NULL DEFAULT 'regular',   -- tier of the labels to write
  keep_mtime INTEGER NOT NULL DEFAULT 0,
  hard_links INTEGER NOT NULL DEFAULT 0,
  scan INTEGER NOT NULL DEFAULT 0,        -- number of the last started scan
  scanned_ms INTEGER                      -- end of the last scan
) STRICT;

CREATE TABLE file (
  id INTEGER PRIMARY KEY,
  folder INTEGER NOT NULL REFERENCES folder (id) ON DELETE CASCADE,
  path BLOB NOT NULL,                     -- relative to the folder
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  links INTEGER NOT NULL,
  ends BLOB NOT NULL,                     -- digest of its beginning and end, to recognise a moved file
  audio BLOB,                             -- digest of its audio without tags at the time of analysis
  kind TEXT,
  title TEXT,
  artist TEXT NOT NULL DEFAULT '[]',
  album TEXT,
  year INTEGER,
  genre TEXT NOT NULL DEFAULT '[]',
  duration REAL,
  seen INTEGER NOT NULL,                  -- the last scan that found it
  missing_ms INTEGER,                     -- time since when it is missing
  round INTEGER NOT NULL DEFAULT 0,       -- increased for every new analysis
  place TEXT NOT NULL DEFAULT '',         -- sort key of waiting files: newest first
  needs TEXT,                             -- 'tag' or NULL
  tagged_ms INTEGER,
  took REAL,                              -- duration of the analysis in seconds
  turn INTEGER NOT NULL DEFAULT 0,        -- like round, for writing
  asked TEXT,                             -- 'write', 'undo' or NULL
  written TEXT,                           -- digest of what was written last; empty: nothing of Tonearm is in the file
  written_ms INTEGER,
  UNIQUE (folder, path)
) STRICT;
CREATE INDEX file_in_line ON file (place) WHERE needs IS NOT NULL AND missing_ms IS NULL;
CREATE INDEX file_asked ON file (id) WHERE asked IS NOT NULL AND missing_ms IS NULL;
CREATE INDEX file_like ON file (size, mtime_ns);
CREATE INDEX file_tagged ON file (tagged_ms) WHERE tagged_ms IS NOT NULL;

CREATE TABLE heard (
  file INTEGER PRIMARY KEY REFERENCES file (id) ON DELETE CASCADE,
  listener TEXT NOT NULL,
  scores BLOB NOT NULL,                   -- float32, concatenated by model
  embedding BLOB NOT NULL,
  decoder TEXT NOT NULL,
  patches INTEGER NOT NULL
) STRICT;

CREATE TABLE label (
  file INTEGER NOT NULL REFERENCES file (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  category TEXT NOT NULL,
  tier TEXT NOT NULL,
  by TEXT NOT NULL,
  score REAL,
  percentile REAL,
  PRIMARY KEY (file, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX label_by_name ON label (name, tier);

CREATE TABLE correction (                 -- user corrections; never overwritten by an analysis
  file INTEGER PRIMARY KEY REFERENCES file (id) ON DELETE CASCADE,
  body TEXT NOT NULL
) STRICT;

CREATE TABLE trouble (                    -- the last error of a file or folder
  folder INTEGER NOT NULL REFERENCES folder (id) ON DELETE CASCADE,
  path BLOB NOT NULL,
  stage TEXT NOT NULL,                    -- scan, tag, write
  why TEXT NOT NULL,
  reason TEXT NOT NULL,
  scan INTEGER NOT NULL DEFAULT 0,        -- the scan that found it
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (folder, path)
) STRICT;

CREATE TABLE calibration (
  id INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  tracks INTEGER NOT NULL,
  moved REAL,                             -- largest change of a label since the previous calibration
  body TEXT NOT NULL
) STRICT;

CREATE TABLE journal (                    -- every write of a file, with its changes
  id INTEGER PRIMARY KEY,
  file INTEGER NOT NULL REFERENCES file (id) ON DELETE CASCADE,
  at_ms INTEGER NOT NULL,
  what TEXT NOT NULL,
  changes TEXT NOT NULL
) STRICT;

CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
