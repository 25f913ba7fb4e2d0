-- In which worker process a job has failed so far, so that one broken process cannot fail a good job for good.

ALTER TABLE chargehand_job ADD COLUMN failed_in TEXT;  -- JSON, see model/trust.py; null: in none
