DROP INDEX sessions_of_host;
CREATE INDEX sessions_of_host ON sessions (owner_id, machine_id) WHERE hosted AND deleted_at IS NULL;
DROP INDEX sessions_that_want;
CREATE INDEX sessions_that_want ON sessions (owner_id) WHERE attention_kind <> 0 AND deleted_at IS NULL;
DROP INDEX sessions_active;
DROP INDEX sessions_of_owner;
CREATE INDEX sessions_of_owner ON sessions (owner_id) WHERE deleted_at IS NULL;
ALTER TABLE sessions DROP COLUMN listed_at;
