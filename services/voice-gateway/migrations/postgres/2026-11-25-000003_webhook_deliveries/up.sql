-- What the operator's endpoints still have to be told of sessions: one row for each endpoint and thing that happened.
CREATE TABLE voice_webhook_deliveries (
    endpoint text NOT NULL,
    id text NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL,
    -- When it is tried next. While somebody tries, later than the deadline of a try.
    due_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    tries integer NOT NULL,
    PRIMARY KEY (endpoint, id)
);
CREATE INDEX voice_webhook_deliveries_due ON voice_webhook_deliveries (endpoint, due_at);
