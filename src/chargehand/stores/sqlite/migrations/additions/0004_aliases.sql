-- Ids that handlers were given for jobs which were not created, because another job held the key: each means that job.

CREATE TABLE chargehand_alias (
  id  TEXT    NOT NULL PRIMARY KEY,
  job INTEGER NOT NULL  -- chargehand_job.seq
) WITHOUT ROWID;

CREATE INDEX chargehand_alias_job ON chargehand_alias (job);

CREATE TRIGGER chargehand_alias_delete AFTER DELETE ON chargehand_job BEGIN
  DELETE FROM chargehand_alias WHERE job = old.seq;
END;
