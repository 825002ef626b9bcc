-- Each row is also the lock for everything about its session. Rows are small, because every append rewrites one.
CREATE TABLE sessions (
    id uuid PRIMARY KEY,
    owner_id uuid NOT NULL,
    machine_id text NOT NULL,
    tag text,
    metadata_version bigint NOT NULL,
    agent_state_version bigint NOT NULL,
    ended_at timestamptz,
    archived boolean NOT NULL,
    thinking boolean NOT NULL,
    last_active_at timestamptz,
    last_seq bigint NOT NULL,
    key_epoch bigint NOT NULL,
    rekey_needed boolean NOT NULL,
    -- Counts the changes that streams must look at, except appends.
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Hidden from everyone. The purge removes the rows later.
    deleted_at timestamptz
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX sessions_tag ON sessions (owner_id, tag) WHERE tag IS NOT NULL AND deleted_at IS NULL;
-- Without `updated_at`, although lists are in its order: if an index held a column that an append changes, every append
-- would write to all indexes of the row. Lists sort an owner's sessions instead.
CREATE INDEX sessions_of_owner ON sessions (owner_id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_to_purge ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

-- Large values that change rarely.
CREATE TABLE session_contents (
    session_id uuid PRIMARY KEY,
    metadata text NOT NULL,
    encryption_key text NOT NULL,
    agent_state text
);

CREATE TABLE messages (
    session_id uuid NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL,
    sender_id uuid NOT NULL,
    local_id text NOT NULL,
    content text NOT NULL,
    key_epoch bigint,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, seq)
);
CREATE UNIQUE INDEX messages_local_id ON messages (session_id, sender_id, local_id);
-- Ciphertext does not compress; trying costs time.
ALTER TABLE messages ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE shares (
    session_id uuid NOT NULL,
    user_id uuid NOT NULL,
    -- 1 view, 2 edit, 3 admin
    access_level smallint NOT NULL CHECK (access_level BETWEEN 1 AND 3),
    encrypted_key text NOT NULL,
    shared_by uuid NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, user_id)
);
CREATE INDEX shares_of_user ON shares (user_id);

CREATE TABLE links (
    session_id uuid PRIMARY KEY,
    -- SHA-256 of the token. The token itself is not stored.
    token_hash bytea NOT NULL UNIQUE,
    -- Signs the link's view tokens. Replaced with the link.
    view_key bytea NOT NULL,
    expires_at timestamptz,
    max_uses bigint,
    uses bigint NOT NULL,
    encrypted_key text,
    created_at timestamptz NOT NULL
);

-- Viewings that had an Idempotency-Key, so that a repeated GET belongs to the same viewing.
CREATE TABLE viewings (
    session_id uuid NOT NULL,
    token_hash bytea NOT NULL,
    key text NOT NULL,
    viewed_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, token_hash, key)
);
CREATE INDEX viewings_viewed_at ON viewings (viewed_at);
