-- A task's ref is unique in its account, as a run's is, so a task of another account never takes one.
DROP INDEX task_specs_ref;
CREATE UNIQUE INDEX task_specs_ref ON task_specs (owner_id, ref);
