-- Each row decides permissions and numbers of its session. Rows are small, because every append rewrites one.
CREATE TABLE sessions (
    id BLOB PRIMARY KEY NOT NULL,
    owner_id BLOB NOT NULL,
    machine_id TEXT NOT NULL,
    tag TEXT,
    metadata_version INTEGER NOT NULL,
    agent_state_version INTEGER NOT NULL,
    ended_at INTEGER,
    archived INTEGER NOT NULL,
    thinking INTEGER NOT NULL,
    last_active_at INTEGER,
    last_seq INTEGER NOT NULL,
    key_epoch INTEGER NOT NULL,
    rekey_needed INTEGER NOT NULL,
    -- Counts the changes that streams must look at, except appends.
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Hidden from everyone. The purge removes the rows later.
    deleted_at INTEGER
) STRICT;
CREATE UNIQUE INDEX sessions_tag ON sessions (owner_id, tag) WHERE tag IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_of_owner ON sessions (owner_id, updated_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX sessions_to_purge ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

-- Large values that change rarely.
CREATE TABLE session_contents (
    session_id BLOB PRIMARY KEY NOT NULL,
    metadata TEXT NOT NULL,
    encryption_key TEXT NOT NULL,
    agent_state TEXT
) STRICT;

CREATE TABLE messages (
    session_id BLOB NOT NULL,
    seq INTEGER NOT NULL,
    id BLOB NOT NULL,
    sender_id BLOB NOT NULL,
    local_id TEXT NOT NULL,
    content TEXT NOT NULL,
    key_epoch INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT;
CREATE UNIQUE INDEX messages_local_id ON messages (session_id, sender_id, local_id);

CREATE TABLE shares (
    session_id BLOB NOT NULL,
    user_id BLOB NOT NULL,
    -- 1 view, 2 edit, 3 admin
    access_level INTEGER NOT NULL CHECK (access_level BETWEEN 1 AND 3),
    encrypted_key TEXT NOT NULL,
    shared_by BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_of_user ON shares (user_id);

CREATE TABLE links (
    session_id BLOB PRIMARY KEY NOT NULL,
    -- SHA-256 of the token. The token itself is not stored.
    token_hash BLOB NOT NULL UNIQUE,
    -- Signs the link's view tokens. Replaced with the link.
    view_key BLOB NOT NULL,
    expires_at INTEGER,
    max_uses INTEGER,
    uses INTEGER NOT NULL,
    encrypted_key TEXT,
    created_at INTEGER NOT NULL
) STRICT;

-- Viewings that had an Idempotency-Key, so that a repeated GET belongs to the same viewing.
CREATE TABLE viewings (
    session_id BLOB NOT NULL,
    token_hash BLOB NOT NULL,
    key TEXT NOT NULL,
    viewed_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, token_hash, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX viewings_viewed_at ON viewings (viewed_at);
