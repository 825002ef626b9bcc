CREATE TABLE machines (
    owner_id             uuid        NOT NULL,
    -- Chosen by the owner: unique only together with the owner. In C order, which is the order of its bytes.
    id                   text        COLLATE "C" NOT NULL,
    metadata             text        NOT NULL,
    metadata_version     bigint      NOT NULL,
    encryption_key       text        NOT NULL,
    daemon_state         text,
    daemon_state_version bigint      NOT NULL,
    activity             text,
    last_active_at       timestamptz,
    created_at           timestamptz NOT NULL,
    updated_at           timestamptz NOT NULL,
    PRIMARY KEY (owner_id, id)
) WITH (fillfactor = 80); -- room for heartbeats, which touch no index

CREATE INDEX machines_newest_first ON machines (owner_id, created_at DESC, id DESC);

-- Deleted machines of which a peer has not been notified yet.
CREATE TABLE departures (
    owner_id          uuid        NOT NULL,
    machine_id        text        NOT NULL,
    deleted_at        timestamptz NOT NULL,
    identity_told     boolean     NOT NULL,
    orchestrator_told boolean     NOT NULL,
    next_try_at       timestamptz NOT NULL,
    PRIMARY KEY (owner_id, machine_id)
);

CREATE INDEX departures_due ON departures (next_try_at);
