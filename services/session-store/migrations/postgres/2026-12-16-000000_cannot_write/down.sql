ALTER TABLE sessions DROP COLUMN cannot_write;
