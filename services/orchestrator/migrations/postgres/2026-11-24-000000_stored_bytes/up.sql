-- What a run takes, for the quota of its owner: its texts, the output and the summaries of its ended attempts, and a
-- fixed size for each task (512), dependency (128) and attempt (512). The output of an open attempt is in its lease.
ALTER TABLE runs ADD COLUMN stored_bytes bigint NOT NULL DEFAULT 0;
-- What the stored output counts: its length, and a fixed size for each piece (128).
ALTER TABLE leases ADD COLUMN output_bytes bigint NOT NULL DEFAULT 0;
-- How much of `output_bytes` the run's `stored_bytes` contains. An attempt can end, go on and end again.
ALTER TABLE leases ADD COLUMN output_counted bigint NOT NULL DEFAULT 0;

UPDATE leases SET output_bytes = output_stored
        + (SELECT count(*) * 128 FROM output_chunks WHERE lease_id = leases.id)
    WHERE output_stored > 0;
UPDATE leases SET output_counted = output_bytes WHERE ended_at IS NOT NULL AND output_bytes > 0;
UPDATE runs SET stored_bytes = COALESCE(octet_length(runs.title), 0)
    + (SELECT COALESCE(sum(512 + octet_length(s.prompt) + COALESCE(octet_length(s.task_key), 0)
            + COALESCE(octet_length(s.title), 0) + COALESCE(octet_length(s.model), 0)
            + COALESCE(octet_length(s.working_directory), 0) + COALESCE(octet_length(t.output_summary), 0)), 0)
        FROM tasks t JOIN task_specs s ON s.task_id = t.id WHERE t.run_id = runs.id)
    + (SELECT count(*) * 128 FROM tasks t JOIN dependencies d ON d.task_id = t.id WHERE t.run_id = runs.id)
    + (SELECT COALESCE(sum(512 + l.output_counted), 0)
        FROM tasks t JOIN leases l ON l.task_id = t.id WHERE t.run_id = runs.id);

-- The sum of an account's runs is read from the index alone.
CREATE INDEX runs_stored_bytes ON runs (owner_id) INCLUDE (stored_bytes);
