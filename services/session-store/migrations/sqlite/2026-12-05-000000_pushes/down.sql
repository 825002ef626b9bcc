DROP TABLE pushes;
DROP INDEX sessions_at_work;
ALTER TABLE sessions DROP COLUMN thinking_since;
