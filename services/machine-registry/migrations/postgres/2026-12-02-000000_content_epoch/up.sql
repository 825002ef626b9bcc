-- The content epoch of the owner in which the machine's key was sealed.
ALTER TABLE machines ADD COLUMN content_epoch bigint;
