ALTER TABLE machines DROP COLUMN signed_off;
