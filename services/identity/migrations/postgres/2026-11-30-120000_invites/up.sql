CREATE TABLE invites (
    -- 128 random bits.
    id          bytea       PRIMARY KEY,
    -- Absent: the server made it, for its first account.
    user_id     uuid,
    -- SHA-256 of what is derived from the secret.
    admission   bytea       NOT NULL,
    state       text        NOT NULL,
    -- What the guest sent and who it is, as JSON.
    claim       text,
    answer      text,
    -- It has made an account.
    admitted    boolean     NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    shown_until timestamptz NOT NULL
);

CREATE INDEX invites_of_account ON invites (user_id, created_at);
CREATE INDEX invites_over ON invites (shown_until);
