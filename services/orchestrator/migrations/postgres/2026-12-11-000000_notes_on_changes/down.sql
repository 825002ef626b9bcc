ALTER TABLE task_changes DROP COLUMN failure;
ALTER TABLE task_changes DROP COLUMN notes;
ALTER TABLE task_changes DROP COLUMN is_unknown;
