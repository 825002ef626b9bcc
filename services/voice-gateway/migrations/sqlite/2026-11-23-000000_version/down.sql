ALTER TABLE voice_sessions DROP COLUMN version;
