-- What a device is notified of, as kinds with commas; null: everything.
ALTER TABLE devices ADD COLUMN notify text;

-- The key that signs at push services (P-256). The private key under AES-256-GCM: nonce and ciphertext.
CREATE TABLE push_keys (
    id     smallint PRIMARY KEY CHECK (id = 1),
    sealed bytea NOT NULL
);

-- Where devices are reached, at most one place each.
CREATE TABLE push_subscriptions (
    device_id uuid PRIMARY KEY,
    user_id   uuid NOT NULL,
    endpoint  text NOT NULL,
    -- P-256, uncompressed: 65 bytes.
    p256dh    bytea NOT NULL,
    -- 16 bytes.
    auth      bytea NOT NULL
);

CREATE INDEX push_subscriptions_of_account ON push_subscriptions (user_id);

-- The events that were given, so that each is sent once.
CREATE TABLE push_events (
    user_id   uuid NOT NULL,
    attention text NOT NULL,
    purge_at  timestamptz NOT NULL,
    PRIMARY KEY (user_id, attention)
);

CREATE INDEX push_events_over ON push_events (purge_at);

-- What still has to be sent.
CREATE TABLE push_deliveries (
    device_id  uuid NOT NULL,
    attention  text NOT NULL,
    user_id    uuid NOT NULL,
    payload    text NOT NULL,
    is_urgent  boolean NOT NULL,
    -- When it is tried next. While somebody tries, later than the deadline of a try.
    due_at     timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    tries      integer NOT NULL,
    PRIMARY KEY (device_id, attention)
);

CREATE INDEX push_deliveries_due ON push_deliveries (due_at);
