-- The minute of the last change: the order of lists. An index may hold it, because an append changes it at most once a minute. The
-- database computes it, so that replicas of the release before keep it right, too.
ALTER TABLE sessions ADD COLUMN listed_at timestamptz NOT NULL
    GENERATED ALWAYS AS (date_bin('1 minute', updated_at, '1970-01-01 00:00:00+00')) STORED;

-- Each list walks one of these from its end.
DROP INDEX sessions_of_owner;
CREATE INDEX sessions_of_owner ON sessions (owner_id, listed_at, id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_active ON sessions (owner_id, listed_at, id) WHERE ended_at IS NULL AND deleted_at IS NULL;
DROP INDEX sessions_that_want;
CREATE INDEX sessions_that_want ON sessions (owner_id, listed_at, id) WHERE attention_kind <> 0 AND deleted_at IS NULL;
DROP INDEX sessions_of_host;
CREATE INDEX sessions_of_host ON sessions (owner_id, machine_id, listed_at, id) WHERE hosted AND deleted_at IS NULL;
