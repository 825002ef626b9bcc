-- The device asked through the loopback listener of `ensemble up`.
ALTER TABLE device_links ADD COLUMN local boolean NOT NULL DEFAULT false;
-- Another device asked later.
ALTER TABLE device_links ADD COLUMN again boolean NOT NULL DEFAULT false;
