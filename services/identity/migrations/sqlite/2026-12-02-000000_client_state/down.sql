ALTER TABLE accounts DROP COLUMN client_state_version;
ALTER TABLE accounts DROP COLUMN client_state;
