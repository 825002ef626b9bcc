ALTER TABLE machines DROP COLUMN content_epoch;
