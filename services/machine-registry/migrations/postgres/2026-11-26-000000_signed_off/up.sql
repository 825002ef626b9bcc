-- The runner has said that it ends. The next heartbeat takes it back.
ALTER TABLE machines ADD COLUMN signed_off boolean NOT NULL DEFAULT false;
