-- Every save of a session increments its version, so that a save that is based on an older state is refused.
ALTER TABLE voice_sessions ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
