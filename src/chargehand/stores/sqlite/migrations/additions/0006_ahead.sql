-- A claim without a worker: the node holds the job for a worker that is about to be free, and readers see it as queued.

ALTER TABLE chargehand_job ADD COLUMN ahead INTEGER;  -- 1 from such a claim on; without meaning if the job has a worker
