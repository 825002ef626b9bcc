-- Splits the table of messages of session-store into partitions by session (docs/SCALING.md, step 3). Everything that names the
-- table works as before: each query names the session, and both unique keys begin with it.
--
--   psql "$SESSION_STORE_DATABASE_URL" --set ON_ERROR_STOP=1 --file deploy/postgres/partition_messages.sql
--
-- One transaction, in which messages cannot be read or written; callers get 503 and try again. It needs the disk for a second copy.
BEGIN;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '10s';
SET LOCAL maintenance_work_mem = '256MB';
LOCK TABLE messages IN ACCESS EXCLUSIVE MODE;
ALTER TABLE messages RENAME TO messages_in_one;
CREATE TABLE messages (LIKE messages_in_one INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING COMMENTS) PARTITION BY HASH (session_id);
DO $$
BEGIN
    FOR part IN 0..31 LOOP
        EXECUTE format('CREATE TABLE messages_%s PARTITION OF messages FOR VALUES WITH (MODULUS 32, REMAINDER %s)', part, part);
    END LOOP;
END
$$;
INSERT INTO messages SELECT * FROM messages_in_one;
DROP TABLE messages_in_one;
-- The names of before, because migrations call them by these.
ALTER TABLE messages ADD CONSTRAINT messages_pkey PRIMARY KEY (session_id, seq);
CREATE UNIQUE INDEX messages_local_ids ON messages (session_id, sender_id, sender_machine_id, local_id);
COMMIT;
ANALYZE messages;
