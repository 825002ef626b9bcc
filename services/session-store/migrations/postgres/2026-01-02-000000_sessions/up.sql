-- The row that everything about a session is locked by. Kept small, because every append rewrites it.
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
    -- Raised with every change that streams must look at, appends apart.
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Gone for everyone; the purge removes what is left.
    deleted_at timestamptz
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX sessions_tag ON sessions (owner_id, tag) WHERE tag IS NOT NULL AND deleted_at IS NULL;
-- Lists are in the order of `updated_at`, and sort an owner's sessions for it: no index may hold what an append changes, or
-- each append writes to every index of the row and leaves an entry in each to be cleaned up.
CREATE INDEX sessions_of_owner ON sessions (owner_id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_to_purge ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

-- What is large and changes seldom.
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
    -- SHA-256 of the token; the token itself is nowhere.
    token_hash bytea NOT NULL UNIQUE,
    -- Signs the view tokens of this generation of the link; replaced with it.
    view_key bytea NOT NULL,
    expires_at timestamptz,
    max_uses bigint,
    uses bigint NOT NULL,
    encrypted_key text,
    created_at timestamptz NOT NULL
);

-- Viewings that had an Idempotency-Key, so that a repeated GET is the same one.
CREATE TABLE viewings (
    session_id uuid NOT NULL,
    token_hash bytea NOT NULL,
    key text NOT NULL,
    viewed_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, token_hash, key)
);
CREATE INDEX viewings_viewed_at ON viewings (viewed_at);
