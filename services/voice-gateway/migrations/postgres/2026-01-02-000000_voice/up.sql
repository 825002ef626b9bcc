-- One row per voice session. `record` is the session as its state machine knows it (JSON, written and read by the
-- gateway only); the columns beside it are what statements search by and people look at.
CREATE TABLE voice_sessions (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    session_id text NOT NULL,
    room_name text NOT NULL,
    phase text NOT NULL CHECK (phase IN ('creating', 'live', 'ending', 'over')),
    end_reason text CHECK ((end_reason IS NULL) = (phase IN ('creating', 'live'))),
    created_at timestamptz NOT NULL,
    active_at timestamptz,
    ended_at timestamptz CHECK ((ended_at IS NULL) = (phase IN ('creating', 'live'))),
    expires_at timestamptz NOT NULL,
    record text NOT NULL,
    -- When a timer wants to look at it; null when it is over and its room is gone.
    due_at timestamptz,
    -- SHA-256 of the agent's credential, and of the one before the last dispatch.
    agent_token bytea NOT NULL,
    agent_token_before bytea,
    idempotency_key text,
    next_seq bigint NOT NULL DEFAULT 1,
    -- Texts that have not reached the agent.
    queued bigint NOT NULL DEFAULT 0,
    -- When something may be delivered; in the future while somebody delivers or after a failure.
    deliver_at timestamptz,
    delivery_claim uuid,
    delivery_failures integer NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX voice_sessions_one_live ON voice_sessions (user_id, session_id) WHERE phase = 'live';
CREATE INDEX voice_sessions_open ON voice_sessions (user_id, session_id) WHERE phase IN ('creating', 'live');
CREATE INDEX voice_sessions_due ON voice_sessions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX voice_sessions_deliver ON voice_sessions (deliver_at) WHERE deliver_at IS NOT NULL;
CREATE INDEX voice_sessions_ended ON voice_sessions (ended_at) WHERE phase = 'over';

-- The outbox. Bodies are emptied when the session ends.
CREATE TABLE voice_texts (
    session uuid NOT NULL REFERENCES voice_sessions (id) ON DELETE CASCADE,
    seq bigint NOT NULL,
    message_id text NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL,
    -- How it left: delivered or sent; null while it waits.
    delivery text CHECK (delivery IN ('delivered', 'sent')),
    PRIMARY KEY (session, seq),
    UNIQUE (session, message_id)
);

-- The newest context of a session that is not over.
CREATE TABLE voice_contexts (
    session uuid PRIMARY KEY REFERENCES voice_sessions (id) ON DELETE CASCADE,
    version bigint NOT NULL,
    body text NOT NULL
);

-- Webhooks that were taken in, by their ids.
CREATE TABLE voice_webhooks (
    id text PRIMARY KEY,
    received_at timestamptz NOT NULL
);
CREATE INDEX voice_webhooks_received ON voice_webhooks (received_at);

-- Seconds per day (UTC, by the start of the session) and user; the empty user is everybody.
CREATE TABLE voice_usage (
    day text NOT NULL,
    user_id text NOT NULL,
    seconds bigint NOT NULL,
    PRIMARY KEY (day, user_id)
);

-- Work that one replica does for all, and when it is due next.
CREATE TABLE voice_chores (
    name text PRIMARY KEY,
    due_at timestamptz NOT NULL
);
