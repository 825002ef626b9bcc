ALTER TABLE voice_usage DROP COLUMN unproven_seconds;
ALTER TABLE voice_sessions DROP COLUMN user_proven;
