CREATE TABLE machines (
    owner_id             BLOB    NOT NULL,
    -- Chosen by the owner: unique only together with the owner.
    id                   TEXT    NOT NULL,
    metadata             TEXT    NOT NULL,
    metadata_version     INTEGER NOT NULL,
    encryption_key       TEXT    NOT NULL,
    daemon_state         TEXT,
    daemon_state_version INTEGER NOT NULL,
    activity             TEXT,
    last_active_at       INTEGER,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    PRIMARY KEY (owner_id, id)
) STRICT;

CREATE INDEX machines_newest_first ON machines (owner_id, created_at DESC, id DESC);

-- Deleted machines of which a peer has not been notified yet.
CREATE TABLE departures (
    owner_id          BLOB    NOT NULL,
    machine_id        TEXT    NOT NULL,
    deleted_at        INTEGER NOT NULL,
    identity_told     INTEGER NOT NULL,
    orchestrator_told INTEGER NOT NULL,
    next_try_at       INTEGER NOT NULL,
    PRIMARY KEY (owner_id, machine_id)
) STRICT;

CREATE INDEX departures_due ON departures (next_try_at);
