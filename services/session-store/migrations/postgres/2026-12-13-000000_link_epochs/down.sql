ALTER TABLE links DROP COLUMN key_epoch;
