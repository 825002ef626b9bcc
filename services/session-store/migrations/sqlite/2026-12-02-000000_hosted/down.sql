CREATE UNIQUE INDEX messages_local_id ON messages (session_id, sender_id, local_id);
DROP INDEX messages_local_ids;
ALTER TABLE messages DROP COLUMN sender_machine_id;
ALTER TABLE shares DROP COLUMN content_epoch;
ALTER TABLE session_contents DROP COLUMN host_key;
ALTER TABLE session_contents DROP COLUMN content_epoch;
DROP INDEX sessions_of_host;
ALTER TABLE sessions DROP COLUMN hosted;
