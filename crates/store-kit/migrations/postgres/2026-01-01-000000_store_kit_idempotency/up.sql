CREATE TABLE idempotency_keys (
    scope text NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    resource text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (scope, route, key)
);
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);
