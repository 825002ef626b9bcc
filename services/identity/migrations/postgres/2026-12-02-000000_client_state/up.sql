-- What the clients of one person share, sealed by them.
ALTER TABLE accounts ADD COLUMN client_state text;
ALTER TABLE accounts ADD COLUMN client_state_version bigint NOT NULL DEFAULT 0;
