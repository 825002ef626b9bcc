DROP INDEX sessions_ref;
ALTER TABLE sessions DROP COLUMN ref;
