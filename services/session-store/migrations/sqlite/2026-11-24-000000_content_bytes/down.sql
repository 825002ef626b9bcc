ALTER TABLE sessions DROP COLUMN content_bytes;
