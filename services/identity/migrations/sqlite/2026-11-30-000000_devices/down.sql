DROP TABLE device_links;
DROP TABLE content_rings;
DROP TABLE device_lists;
DROP TABLE devices;
ALTER TABLE machine_tokens DROP COLUMN by_key;
