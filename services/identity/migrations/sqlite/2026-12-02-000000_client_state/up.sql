-- What the clients of one person share, sealed by them.
ALTER TABLE accounts ADD COLUMN client_state TEXT;
ALTER TABLE accounts ADD COLUMN client_state_version INTEGER NOT NULL DEFAULT 0;
