-- Every key that is or was in the list of an account. Rows stay, so that no key is listed again.
CREATE TABLE devices (
    id           BLOB    PRIMARY KEY,
    user_id      BLOB    NOT NULL,
    -- Ed25519, 32 bytes.
    public_key   BLOB    NOT NULL UNIQUE,
    -- X25519, 32 bytes.
    box_key      BLOB    NOT NULL,
    role         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    name         TEXT,
    machine_id   TEXT,
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER,
    removed_at   INTEGER,
    -- When the last token that this key asked for expires, with the difference of clocks.
    tokens_until INTEGER,
    CHECK ((role = 'machine') = (machine_id IS NOT NULL))
) STRICT;

CREATE INDEX devices_of_account ON devices (user_id, created_at, id) WHERE removed_at IS NULL;
CREATE INDEX devices_with_tokens ON devices (tokens_until) WHERE removed_at IS NOT NULL;

-- All lists of an account, as they were signed.
CREATE TABLE device_lists (
    user_id   BLOB    NOT NULL,
    version   INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    -- Ed25519: 32 and 64 bytes.
    signer    BLOB    NOT NULL,
    signature BLOB    NOT NULL,
    -- SHA-256 of the body.
    digest    BLOB    NOT NULL,
    PRIMARY KEY (user_id, version)
) STRICT;

-- The newest content ring for each device that may open contents, sealed to the device.
CREATE TABLE content_rings (
    public_key    BLOB    PRIMARY KEY,
    user_id       BLOB    NOT NULL,
    -- Of the list that the ring came with.
    version       INTEGER NOT NULL,
    content_epoch INTEGER NOT NULL,
    sealed        TEXT    NOT NULL
) STRICT;

CREATE INDEX content_rings_of_account ON content_rings (user_id);

-- Linkings in progress, and those that ended a moment ago.
CREATE TABLE device_links (
    -- 128 random bits.
    id         BLOB    PRIMARY KEY,
    user_id    BLOB    NOT NULL,
    state      TEXT    NOT NULL,
    -- What the new device sent, as JSON.
    request    TEXT,
    answer     TEXT,
    expires_at INTEGER NOT NULL,
    purge_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX device_links_of_account ON device_links (user_id, expires_at);
CREATE INDEX device_links_over ON device_links (purge_at);

-- A machine that signed in with a key of its own asked for the token.
ALTER TABLE machine_tokens ADD COLUMN by_key INTEGER NOT NULL DEFAULT 0;
