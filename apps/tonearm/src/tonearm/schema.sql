-- Tonearm's own tables: what lies in the folders, what was heard, what is to be done. Work itself is Chargehand's.

CREATE TABLE folder (
  id INTEGER PRIMARY KEY,
  root BLOB NOT NULL UNIQUE,              -- absolute, as the file system spells it: a name need not be text
  mode TEXT NOT NULL DEFAULT 'none',      -- what is written into its files: none, minimal, full
  onto TEXT NOT NULL DEFAULT '[]',        -- mappings onto standard tags, as JSON
  tier TEXT NOT NULL DEFAULT 'regular',   -- which labels are written
  keep_mtime INTEGER NOT NULL DEFAULT 0,
  hard_links INTEGER NOT NULL DEFAULT 0,
  scan INTEGER NOT NULL DEFAULT 0,        -- the number of the last scan that began
  scanned_ms INTEGER                      -- when the last one ended
) STRICT;

CREATE TABLE file (
  id INTEGER PRIMARY KEY,
  folder INTEGER NOT NULL REFERENCES folder (id) ON DELETE CASCADE,
  path BLOB NOT NULL,                     -- within the folder
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  links INTEGER NOT NULL,
  ends BLOB NOT NULL,                     -- a digest of its beginning and end: how a moved file is recognised
  audio BLOB,                             -- a digest of its audio without tags, taken when it was heard
  kind TEXT,
  title TEXT,
  artist TEXT NOT NULL DEFAULT '[]',
  album TEXT,
  year INTEGER,
  genre TEXT NOT NULL DEFAULT '[]',
  duration REAL,
  seen INTEGER NOT NULL,                  -- the last scan that met it
  missing_ms INTEGER,                     -- since when it is not there
  round INTEGER NOT NULL DEFAULT 0,       -- counted up whenever it is to be heard anew
  place TEXT NOT NULL DEFAULT '',         -- where it stands in the line to be heard: newest first
  needs TEXT,                             -- 'tag', or nothing
  tagged_ms INTEGER,
  took REAL,                              -- seconds that hearing it took
  turn INTEGER NOT NULL DEFAULT 0,        -- the same as round, for writing
  asked TEXT,                             -- 'write', 'undo', or nothing
  written TEXT,                           -- a digest of what was written last
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
  scores BLOB NOT NULL,                   -- float32, model after model
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

CREATE TABLE correction (                 -- what a person said; it outlives everything else
  file INTEGER PRIMARY KEY REFERENCES file (id) ON DELETE CASCADE,
  body TEXT NOT NULL
) STRICT;

CREATE TABLE trouble (                    -- one line a file or folder: what is wrong with it
  folder INTEGER NOT NULL REFERENCES folder (id) ON DELETE CASCADE,
  path BLOB NOT NULL,
  stage TEXT NOT NULL,                    -- scan, tag, write
  why TEXT NOT NULL,
  reason TEXT NOT NULL,
  scan INTEGER NOT NULL DEFAULT 0,        -- the scan that met it
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (folder, path)
) STRICT;

CREATE TABLE calibration (
  id INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  tracks INTEGER NOT NULL,
  moved REAL,                             -- by how much the label that moved most did, since the one before
  body TEXT NOT NULL
) STRICT;

CREATE TABLE journal (                    -- every file that was written, and what was changed in it
  id INTEGER PRIMARY KEY,
  file INTEGER NOT NULL REFERENCES file (id) ON DELETE CASCADE,
  at_ms INTEGER NOT NULL,
  what TEXT NOT NULL,
  changes TEXT NOT NULL
) STRICT;

CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
