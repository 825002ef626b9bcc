ALTER TABLE task_changes DROP COLUMN is_partial;
CREATE TABLE deleted_runs_old (
    run_id BLOB PRIMARY KEY
) STRICT;
INSERT INTO deleted_runs_old SELECT run_id FROM deleted_runs WHERE NOT purged;
DROP TABLE deleted_runs;
ALTER TABLE deleted_runs_old RENAME TO deleted_runs;
ALTER TABLE runs DROP COLUMN request_hash;
