-- The session's key epoch when a link was made. Not known of older links.
ALTER TABLE links ADD COLUMN key_epoch INTEGER;
