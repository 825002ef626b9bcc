-- The minute of the last change: the order of lists, as on PostgreSQL.
ALTER TABLE sessions ADD COLUMN listed_at INTEGER NOT NULL
    GENERATED ALWAYS AS (updated_at - updated_at % 60000000) VIRTUAL;

-- Each list walks one of these from its end.
DROP INDEX sessions_of_owner;
CREATE INDEX sessions_of_owner ON sessions (owner_id, listed_at, id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_active ON sessions (owner_id, listed_at, id) WHERE ended_at IS NULL AND deleted_at IS NULL;
DROP INDEX sessions_that_want;
CREATE INDEX sessions_that_want ON sessions (owner_id, listed_at, id) WHERE attention_kind <> 0 AND deleted_at IS NULL;
DROP INDEX sessions_of_host;
CREATE INDEX sessions_of_host ON sessions (owner_id, machine_id, listed_at, id) WHERE hosted AND deleted_at IS NULL;
