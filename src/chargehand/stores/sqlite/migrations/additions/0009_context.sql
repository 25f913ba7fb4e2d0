-- What callers say about a job besides its payload. Older code ignores it.

ALTER TABLE chargehand_job ADD COLUMN meta TEXT;         -- JSON: an object
ALTER TABLE chargehand_job ADD COLUMN traceparent TEXT;  -- W3C Trace Context
