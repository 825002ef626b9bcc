-- The length of the contents of the session's messages, for the quota of its owner. An append adds to it.
ALTER TABLE sessions ADD COLUMN content_bytes bigint NOT NULL DEFAULT 0;
UPDATE sessions SET content_bytes =
    (SELECT COALESCE(sum(octet_length(content)), 0) FROM messages WHERE session_id = sessions.id)
    WHERE last_seq > 0;
