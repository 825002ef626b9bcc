-- The machine of a device was deleted. Its key signs in no more, also while the list still has it.
ALTER TABLE devices ADD COLUMN machine_deleted_at timestamptz;
CREATE INDEX devices_of_machine ON devices (user_id, machine_id) WHERE machine_id IS NOT NULL;

-- When the service took a list, so that an account cannot make them without end. Null in lists from before.
ALTER TABLE device_lists ADD COLUMN taken_at timestamptz;
