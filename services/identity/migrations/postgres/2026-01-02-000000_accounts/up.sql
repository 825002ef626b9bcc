CREATE TABLE accounts (
    id                           uuid        PRIMARY KEY,
    -- Ed25519, 32 bytes: the account.
    public_key                   bytea       NOT NULL UNIQUE,
    -- X25519, 32 bytes, and the account key's signature over it.
    content_public_key           bytea,
    content_public_key_signature bytea,
    display_name                 text,
    created_at                   timestamptz NOT NULL,
    CHECK ((content_public_key IS NULL) = (content_public_key_signature IS NULL))
);

-- What has been given out to be signed and not come back yet. What a crash loses is asked for again.
CREATE UNLOGGED TABLE challenges (
    challenge  bytea       PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

CREATE INDEX challenges_expiring ON challenges (expires_at);

-- Tokens of machines, without the tokens.
CREATE TABLE machine_tokens (
    id         uuid        PRIMARY KEY,
    user_id    uuid        NOT NULL,
    machine_id text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    revoked    boolean     NOT NULL
);

CREATE INDEX machine_tokens_newest_first ON machine_tokens (user_id, created_at DESC, id DESC);
CREATE INDEX machine_tokens_expiring ON machine_tokens (expires_at);

-- Tokens that are refused although they have not expired.
CREATE TABLE revocations (
    token_id   uuid        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

CREATE INDEX revocations_expiring ON revocations (expires_at);

CREATE TABLE signing_keys (
    -- Counts up; two replicas that make the next key at once cannot both.
    generation bigint      PRIMARY KEY,
    key_id     text        NOT NULL UNIQUE,
    public_key bytea       NOT NULL,
    -- The private key under AES-256-GCM: nonce and ciphertext.
    sealed     bytea       NOT NULL,
    signs_from timestamptz NOT NULL
);
