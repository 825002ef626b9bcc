DROP INDEX runs_stored_bytes;
ALTER TABLE leases DROP COLUMN output_counted;
ALTER TABLE leases DROP COLUMN output_bytes;
ALTER TABLE runs DROP COLUMN stored_bytes;
