-- A machine made the session with its own token.
ALTER TABLE sessions ADD COLUMN hosted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_of_host ON sessions (owner_id, machine_id) WHERE hosted AND deleted_at IS NULL;

-- The content epochs of the readers in which the keys beside them were sealed, and the key for the session's machine.
ALTER TABLE session_contents ADD COLUMN content_epoch INTEGER;
ALTER TABLE session_contents ADD COLUMN host_key TEXT;
ALTER TABLE shares ADD COLUMN content_epoch INTEGER;

-- The machine that sent a message with its own token; empty for people. A machine's local ids are apart from its owner's.
ALTER TABLE messages ADD COLUMN sender_machine_id TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX messages_local_ids ON messages (session_id, sender_id, sender_machine_id, local_id);
DROP INDEX messages_local_id;
