CREATE TABLE invites (
    -- 128 random bits.
    id          BLOB    PRIMARY KEY,
    -- Absent: the server made it, for its first account.
    user_id     BLOB,
    -- SHA-256 of what is derived from the secret.
    admission   BLOB    NOT NULL,
    state       TEXT    NOT NULL,
    -- What the guest sent and who it is, as JSON.
    claim       TEXT,
    answer      TEXT,
    -- It has made an account.
    admitted    INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    shown_until INTEGER NOT NULL
) STRICT;

CREATE INDEX invites_of_account ON invites (user_id, created_at);
CREATE INDEX invites_over ON invites (shown_until);
