ALTER TABLE device_lists DROP COLUMN taken_at;
DROP INDEX devices_of_machine;
ALTER TABLE devices DROP COLUMN machine_deleted_at;
