-- Whether the start came with the user's token. Limits count these sessions and the others apart.
ALTER TABLE voice_sessions ADD COLUMN user_proven INTEGER NOT NULL DEFAULT 0;
UPDATE voice_sessions SET user_proven = 1 WHERE phase IN ('creating', 'live') AND json_extract(record, '$.user_proven') = 1;

-- Seconds of sessions without it; `seconds` are those with it, and what was counted before today's migration.
ALTER TABLE voice_usage ADD COLUMN unproven_seconds INTEGER NOT NULL DEFAULT 0;
