-- What a hosted session wants from its people: 0 nothing, 1 permission, 2 question, 3 finished, 4 failed.
ALTER TABLE sessions ADD COLUMN attention_kind smallint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN attention_open smallint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN attention_since timestamptz;
ALTER TABLE sessions ADD COLUMN attention_id text;
ALTER TABLE sessions ADD COLUMN attention_version bigint NOT NULL DEFAULT 0;
CREATE INDEX sessions_that_want ON sessions (owner_id) WHERE attention_kind <> 0 AND deleted_at IS NULL;

-- The process that hosts the session.
ALTER TABLE sessions ADD COLUMN host_id uuid;
