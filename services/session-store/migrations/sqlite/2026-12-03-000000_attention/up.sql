-- What a hosted session wants from its people: 0 nothing, 1 permission, 2 question, 3 finished, 4 failed.
ALTER TABLE sessions ADD COLUMN attention_kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN attention_open INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN attention_since INTEGER;
ALTER TABLE sessions ADD COLUMN attention_id TEXT;
ALTER TABLE sessions ADD COLUMN attention_version INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_that_want ON sessions (owner_id) WHERE attention_kind <> 0 AND deleted_at IS NULL;

-- The process that hosts the session.
ALTER TABLE sessions ADD COLUMN host_id BLOB;
