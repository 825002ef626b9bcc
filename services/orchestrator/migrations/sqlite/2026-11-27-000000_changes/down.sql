DROP TABLE task_diff_ends;
DROP TABLE task_diffs;
DROP TABLE task_changes;
DROP INDEX leases_that_wait;
ALTER TABLE leases DROP COLUMN waiting_since;
ALTER TABLE leases DROP COLUMN waiting_for;
ALTER TABLE task_specs DROP COLUMN base_task;
ALTER TABLE task_specs DROP COLUMN base;
ALTER TABLE task_specs DROP COLUMN isolation;
