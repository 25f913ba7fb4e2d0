-- oldest: 3
-- What operators and nodes add to a recurring job: its pause, and its newest jobs. Older code ignores it: its nodes enqueue
-- the job in spite of a pause.

CREATE TABLE chargehand_recurrence (
  name         text   PRIMARY KEY,  -- chargehand_recurring.name; stays when no node declares it
  paused_ms    bigint,              -- NULL: not paused
  paused_by    text,
  pause_reason text,
  runs         text   NOT NULL DEFAULT '[]'  -- JSON: the ids of its newest jobs, oldest first
);
