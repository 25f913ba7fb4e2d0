-- What operators and nodes add to a recurring job: its pause, and its newest jobs. Older code ignores it: its nodes enqueue
-- the job in spite of a pause.

CREATE TABLE chargehand_recurrence (
  name         TEXT PRIMARY KEY,  -- chargehand_recurring.name; stays when no node declares it
  paused_ms    INTEGER,           -- NULL: not paused
  paused_by    TEXT,
  pause_reason TEXT,
  runs         TEXT NOT NULL DEFAULT '[]'  -- JSON: the ids of its newest jobs, oldest first
) WITHOUT ROWID;
