-- Tags of jobs. The triggers keep the table of tags, so that version 0.1.0, which knows no tags, keeps it, too.

ALTER TABLE chargehand_job ADD COLUMN tags TEXT;  -- a JSON array of strings; null: none

CREATE TABLE chargehand_tag (
  tag TEXT    NOT NULL,
  job INTEGER NOT NULL,  -- chargehand_job.seq
  PRIMARY KEY (tag, job)
) WITHOUT ROWID;

CREATE TRIGGER chargehand_tag_insert AFTER INSERT ON chargehand_job WHEN new.tags IS NOT NULL BEGIN
  INSERT INTO chargehand_tag (tag, job) SELECT DISTINCT value, new.seq FROM json_each(new.tags);
END;
CREATE TRIGGER chargehand_tag_delete AFTER DELETE ON chargehand_job WHEN old.tags IS NOT NULL BEGIN
  DELETE FROM chargehand_tag WHERE job = old.seq AND tag IN (SELECT value FROM json_each(old.tags));
END;
