DROP TABLE ended_tasks;
ALTER TABLE runs ADD CONSTRAINT runs_canceling CHECK (status <> 'canceling' OR queued = 0);
DROP INDEX runs_unsettled;
ALTER TABLE runs DROP COLUMN requeue_version;
ALTER TABLE runs DROP COLUMN requeue_from;
ALTER TABLE runs DROP COLUMN unsettled;
