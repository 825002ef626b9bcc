-- What the operator's endpoints still have to be told of sessions: one row for each endpoint and thing that happened.
CREATE TABLE voice_webhook_deliveries (
    endpoint TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- When it is tried next. While somebody tries, later than the deadline of a try.
    due_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    PRIMARY KEY (endpoint, id)
) STRICT;
CREATE INDEX voice_webhook_deliveries_due ON voice_webhook_deliveries (endpoint, due_at);
