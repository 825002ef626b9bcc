-- Every save of a session increments its version, so that a save that is based on an older state is refused.
ALTER TABLE voice_sessions ADD COLUMN version bigint NOT NULL DEFAULT 1;

-- Databases of development builds may have these functions. The gateway does not call them any more.
DROP FUNCTION IF EXISTS voice_open;
DROP FUNCTION IF EXISTS voice_in_use;
