-- Whether the start came with the user's token. Limits count these sessions and the others apart.
ALTER TABLE voice_sessions ADD COLUMN user_proven boolean NOT NULL DEFAULT false;
UPDATE voice_sessions SET user_proven = true WHERE phase IN ('creating', 'live') AND (record::jsonb ->> 'user_proven') = 'true';

-- Seconds of sessions without it; `seconds` are those with it, and what was counted before today's migration.
ALTER TABLE voice_usage ADD COLUMN unproven_seconds bigint NOT NULL DEFAULT 0;
