DROP INDEX runs_ref;
ALTER TABLE runs DROP COLUMN ref;
DROP INDEX task_specs_ref;
ALTER TABLE task_specs DROP COLUMN ref;
