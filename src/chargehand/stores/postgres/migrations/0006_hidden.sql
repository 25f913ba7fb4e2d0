-- oldest: 3
-- The fields of a crew's jobs whose values readers are not shown. Older code ignores it: its pages show them.

ALTER TABLE chargehand_crew ADD COLUMN hide text;  -- JSON: a list of names
