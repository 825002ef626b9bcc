-- PostgreSQL writes to all indexes of a row when an update changes a column that one of them needs: as a key, in its condition, or
-- included. What happens to a task changes `ready`, `served_at` and `stored_bytes` of its run, so no index may need them. The runs
-- of an account that have work are among those in `runs_active`.
DROP INDEX runs_to_serve;

-- What a run that has ended takes. The sum of an account's runs is read from the index alone, except for the runs that have not ended.
ALTER TABLE runs ADD COLUMN ended_bytes bigint
    GENERATED ALWAYS AS (CASE WHEN finished_at IS NOT NULL THEN stored_bytes END) STORED;
DROP INDEX runs_stored_bytes;
CREATE INDEX runs_ended_bytes ON runs (owner_id) INCLUDE (ended_bytes);
