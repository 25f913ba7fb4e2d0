-- oldest: 3
-- What callers say about a job besides its payload. Older code ignores it.

ALTER TABLE chargehand_job
  ADD COLUMN meta text,         -- JSON: an object
  ADD COLUMN traceparent text;  -- W3C Trace Context
