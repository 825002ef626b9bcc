-- What a change means for a whole run is done in small transactions: the first one with the change, the others by a worker.
-- Something of it is left to do.
ALTER TABLE runs ADD COLUMN unsettled boolean NOT NULL DEFAULT false;
-- After a retry: the tasks from this position on are to be queued again, unless they have this version or a later one.
ALTER TABLE runs ADD COLUMN requeue_from integer;
ALTER TABLE runs ADD COLUMN requeue_version bigint;
CREATE INDEX runs_unsettled ON runs (id) WHERE unsettled;
-- The queued tasks of a cancelled run are cancelled one batch after the other.
ALTER TABLE runs DROP CONSTRAINT runs_canceling;

-- Tasks that have ended, and of which not all dependents are told.
CREATE TABLE ended_tasks (
    run_id     uuid NOT NULL,
    task_id    uuid NOT NULL,
    -- The last dependent that is told, in the order of the ids. NULL before the first.
    told_until uuid,
    PRIMARY KEY (run_id, task_id)
);
