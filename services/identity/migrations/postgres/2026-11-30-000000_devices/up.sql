-- Every key that is or was in the list of an account. Rows stay, so that no key is listed again.
CREATE TABLE devices (
    id           uuid        PRIMARY KEY,
    user_id      uuid        NOT NULL,
    -- Ed25519, 32 bytes.
    public_key   bytea       NOT NULL UNIQUE,
    -- X25519, 32 bytes.
    box_key      bytea       NOT NULL,
    role         text        NOT NULL,
    kind         text        NOT NULL,
    name         text,
    machine_id   text,
    created_at   timestamptz NOT NULL,
    last_seen_at timestamptz,
    removed_at   timestamptz,
    -- When the last token that this key asked for expires, with the difference of clocks.
    tokens_until timestamptz,
    CHECK ((role = 'machine') = (machine_id IS NOT NULL))
);

CREATE INDEX devices_of_account ON devices (user_id, created_at, id) WHERE removed_at IS NULL;
CREATE INDEX devices_with_tokens ON devices (tokens_until) WHERE removed_at IS NOT NULL;

-- All lists of an account, as they were signed.
CREATE TABLE device_lists (
    user_id   uuid    NOT NULL,
    version   integer NOT NULL,
    body      text    NOT NULL,
    -- Ed25519: 32 and 64 bytes.
    signer    bytea   NOT NULL,
    signature bytea   NOT NULL,
    -- SHA-256 of the body.
    digest    bytea   NOT NULL,
    PRIMARY KEY (user_id, version)
);

-- The newest content ring for each device that may open contents, sealed to the device.
CREATE TABLE content_rings (
    public_key    bytea   PRIMARY KEY,
    user_id       uuid    NOT NULL,
    -- Of the list that the ring came with.
    version       integer NOT NULL,
    content_epoch integer NOT NULL,
    sealed        text    NOT NULL
);

CREATE INDEX content_rings_of_account ON content_rings (user_id);

-- Linkings in progress, and those that ended a moment ago.
CREATE TABLE device_links (
    -- 128 random bits.
    id         bytea       PRIMARY KEY,
    user_id    uuid        NOT NULL,
    state      text        NOT NULL,
    -- What the new device sent, as JSON.
    request    text,
    answer     text,
    expires_at timestamptz NOT NULL,
    purge_at   timestamptz NOT NULL
);

CREATE INDEX device_links_of_account ON device_links (user_id, expires_at);
CREATE INDEX device_links_over ON device_links (purge_at);

-- A machine that signed in with a key of its own asked for the token.
ALTER TABLE machine_tokens ADD COLUMN by_key boolean NOT NULL DEFAULT false;
