-- The rows keep their refs.
DROP INDEX sessions_ref;
CREATE UNIQUE INDEX sessions_ref ON sessions (ref);
