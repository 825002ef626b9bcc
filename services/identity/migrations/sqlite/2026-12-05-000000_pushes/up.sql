-- What a device is notified of, as kinds with commas; null: everything.
ALTER TABLE devices ADD COLUMN notify TEXT;

-- The key that signs at push services (P-256). The private key under AES-256-GCM: nonce and ciphertext.
CREATE TABLE push_keys (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    sealed BLOB NOT NULL
) STRICT;

-- Where devices are reached, at most one place each.
CREATE TABLE push_subscriptions (
    device_id BLOB PRIMARY KEY,
    user_id   BLOB NOT NULL,
    endpoint  TEXT NOT NULL,
    -- P-256, uncompressed: 65 bytes.
    p256dh    BLOB NOT NULL,
    -- 16 bytes.
    auth      BLOB NOT NULL
) STRICT;

CREATE INDEX push_subscriptions_of_account ON push_subscriptions (user_id);

-- The events that were given, so that each is sent once.
CREATE TABLE push_events (
    user_id   BLOB NOT NULL,
    attention TEXT NOT NULL,
    purge_at  INTEGER NOT NULL,
    PRIMARY KEY (user_id, attention)
) STRICT;

CREATE INDEX push_events_over ON push_events (purge_at);

-- What still has to be sent.
CREATE TABLE push_deliveries (
    device_id  BLOB NOT NULL,
    attention  TEXT NOT NULL,
    user_id    BLOB NOT NULL,
    payload    TEXT NOT NULL,
    is_urgent  INTEGER NOT NULL,
    -- When it is tried next. While somebody tries, later than the deadline of a try.
    due_at     INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    tries      INTEGER NOT NULL,
    PRIMARY KEY (device_id, attention)
) STRICT;

CREATE INDEX push_deliveries_due ON push_deliveries (due_at);
