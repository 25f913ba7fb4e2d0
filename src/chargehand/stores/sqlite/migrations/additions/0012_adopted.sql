-- A job that had the key of a child, and so takes its place. Older code ignores it: to older code such a job is no child.

ALTER TABLE chargehand_alias ADD COLUMN parent TEXT;      -- the id of the job that spawned what has this id
ALTER TABLE chargehand_alias ADD COLUMN ordinal INTEGER;  -- the place among the children of the parent, as in an edge
CREATE INDEX chargehand_alias_parent ON chargehand_alias (parent) WHERE parent IS NOT NULL;

-- The order among edges of a job with the same `nr`; null: 2^20 times the predecessor.
ALTER TABLE chargehand_edge ADD COLUMN ordinal INTEGER;
CREATE INDEX chargehand_edge_ordinal ON chargehand_edge (job) WHERE ordinal IS NOT NULL;
