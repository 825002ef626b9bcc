DROP INDEX runs_ended_bytes;
ALTER TABLE runs DROP COLUMN ended_bytes;
CREATE INDEX runs_stored_bytes ON runs (owner_id) INCLUDE (stored_bytes);
CREATE INDEX runs_to_serve ON runs (owner_id, served_at) WHERE ready > 0;
