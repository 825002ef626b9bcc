-- SHA-256 of the request that made the run, when its client chose the id: the same request again is the same run.
ALTER TABLE runs ADD COLUMN request_hash bytea;

-- The id and the ref of a deleted run are not given again for 90 days. `purged`: nothing else of the run is left.
ALTER TABLE deleted_runs ADD COLUMN owner_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000';
ALTER TABLE deleted_runs ALTER COLUMN owner_id DROP DEFAULT;
ALTER TABLE deleted_runs ADD COLUMN ref text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE deleted_runs ALTER COLUMN ref DROP DEFAULT;
ALTER TABLE deleted_runs ADD COLUMN deleted_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE deleted_runs ALTER COLUMN deleted_at DROP DEFAULT;
ALTER TABLE deleted_runs ADD COLUMN purged boolean NOT NULL DEFAULT false;
CREATE INDEX deleted_runs_to_purge ON deleted_runs (run_id) WHERE NOT purged;
CREATE INDEX deleted_runs_oldest_first ON deleted_runs (deleted_at);
CREATE INDEX deleted_runs_of_owner ON deleted_runs (owner_id, ref);

-- In the order of their bytes, as the machine has sent them: their digest is signed.
ALTER TABLE task_diffs ALTER COLUMN path TYPE text COLLATE "C";

-- The machine has not sent all of the diff, or could not.
ALTER TABLE task_changes ADD COLUMN is_partial boolean NOT NULL DEFAULT false;
