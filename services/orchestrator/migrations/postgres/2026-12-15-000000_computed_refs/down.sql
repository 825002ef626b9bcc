-- The rows keep their refs.
DROP INDEX runs_ref;
CREATE UNIQUE INDEX runs_ref ON runs (ref);
DROP INDEX task_specs_ref;
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
