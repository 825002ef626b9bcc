CREATE TABLE accounts (
    id                           BLOB    PRIMARY KEY,
    -- Ed25519, 32 bytes: the account.
    public_key                   BLOB    NOT NULL UNIQUE,
    -- X25519, 32 bytes, and the account key's signature over it.
    content_public_key           BLOB,
    content_public_key_signature BLOB,
    display_name                 TEXT,
    created_at                   INTEGER NOT NULL,
    CHECK ((content_public_key IS NULL) = (content_public_key_signature IS NULL))
) STRICT;

-- What has been given out to be signed and not come back yet. What a crash loses is asked for again.
CREATE TABLE challenges (
    challenge  BLOB    PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX challenges_expiring ON challenges (expires_at);

-- Tokens of machines, without the tokens.
CREATE TABLE machine_tokens (
    id         BLOB    PRIMARY KEY,
    user_id    BLOB    NOT NULL,
    machine_id TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked    INTEGER NOT NULL
) STRICT;

CREATE INDEX machine_tokens_newest_first ON machine_tokens (user_id, created_at DESC, id DESC);
CREATE INDEX machine_tokens_expiring ON machine_tokens (expires_at);

-- Tokens that are refused although they have not expired.
CREATE TABLE revocations (
    token_id   BLOB    PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX revocations_expiring ON revocations (expires_at);

CREATE TABLE signing_keys (
    -- Counts up; two replicas that make the next key at once cannot both.
    generation INTEGER PRIMARY KEY,
    key_id     TEXT    NOT NULL UNIQUE,
    public_key BLOB    NOT NULL,
    -- The private key under AES-256-GCM: nonce and ciphertext.
    sealed     BLOB    NOT NULL,
    signs_from INTEGER NOT NULL
) STRICT;
