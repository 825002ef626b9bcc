ALTER TABLE device_links DROP COLUMN again;
ALTER TABLE device_links DROP COLUMN local;
