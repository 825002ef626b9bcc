-- The device asked through the loopback listener of `ensemble up`.
ALTER TABLE device_links ADD COLUMN local INTEGER NOT NULL DEFAULT 0;
-- Another device asked later.
ALTER TABLE device_links ADD COLUMN again INTEGER NOT NULL DEFAULT 0;
