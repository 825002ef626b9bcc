CREATE TABLE idempotency_keys (
    scope TEXT NOT NULL,
    route TEXT NOT NULL,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    resource TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);
