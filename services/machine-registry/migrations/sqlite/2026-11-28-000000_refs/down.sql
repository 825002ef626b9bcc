DROP INDEX machines_ref;
ALTER TABLE machines DROP COLUMN ref;
