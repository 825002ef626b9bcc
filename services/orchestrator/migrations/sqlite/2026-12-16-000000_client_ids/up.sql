-- SHA-256 of the request that made the run, when its client chose the id: the same request again is the same run.
ALTER TABLE runs ADD COLUMN request_hash BLOB;

-- The id and the ref of a deleted run are not given again for 90 days. `purged`: nothing else of the run is left.
CREATE TABLE deleted_runs_new (
    run_id     BLOB PRIMARY KEY,
    owner_id   BLOB NOT NULL,
    ref        TEXT NOT NULL,
    deleted_at INTEGER NOT NULL,
    purged     INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO deleted_runs_new (run_id, owner_id, ref, deleted_at)
    SELECT run_id, zeroblob(16), '', CAST(strftime('%s', 'now') AS INTEGER) * 1000000 FROM deleted_runs;
DROP TABLE deleted_runs;
ALTER TABLE deleted_runs_new RENAME TO deleted_runs;
CREATE INDEX deleted_runs_to_purge ON deleted_runs (run_id) WHERE NOT purged;
CREATE INDEX deleted_runs_oldest_first ON deleted_runs (deleted_at);
CREATE INDEX deleted_runs_of_owner ON deleted_runs (owner_id, ref);

-- The machine has not sent all of the diff, or could not.
ALTER TABLE task_changes ADD COLUMN is_partial INTEGER NOT NULL DEFAULT 0;
