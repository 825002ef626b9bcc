-- One row per voice session. `record` is the session as its state machine knows it (JSON, written and read by the
-- gateway only); the columns beside it are what statements search by and people look at.
CREATE TABLE voice_sessions (
    id BLOB PRIMARY KEY,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    room_name TEXT NOT NULL,
    phase TEXT NOT NULL CHECK (phase IN ('creating', 'live', 'ending', 'over')),
    end_reason TEXT CHECK ((end_reason IS NULL) = (phase IN ('creating', 'live'))),
    created_at INTEGER NOT NULL,
    active_at INTEGER,
    ended_at INTEGER CHECK ((ended_at IS NULL) = (phase IN ('creating', 'live'))),
    expires_at INTEGER NOT NULL,
    record TEXT NOT NULL,
    -- When a timer wants to look at it; null when it is over and its room is gone.
    due_at INTEGER,
    -- SHA-256 of the agent's credential, and of the one before the last dispatch.
    agent_token BLOB NOT NULL,
    agent_token_before BLOB,
    idempotency_key TEXT,
    next_seq INTEGER NOT NULL DEFAULT 1,
    -- Texts that have not reached the agent.
    queued INTEGER NOT NULL DEFAULT 0,
    -- When something may be delivered; in the future while somebody delivers or after a failure.
    deliver_at INTEGER,
    delivery_claim BLOB,
    delivery_failures INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX voice_sessions_one_live ON voice_sessions (user_id, session_id) WHERE phase = 'live';
CREATE INDEX voice_sessions_open ON voice_sessions (user_id, session_id) WHERE phase IN ('creating', 'live');
CREATE INDEX voice_sessions_due ON voice_sessions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX voice_sessions_deliver ON voice_sessions (deliver_at) WHERE deliver_at IS NOT NULL;
CREATE INDEX voice_sessions_ended ON voice_sessions (ended_at) WHERE phase = 'over';

-- The outbox. Bodies are emptied when the session ends.
CREATE TABLE voice_texts (
    session BLOB NOT NULL REFERENCES voice_sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- How it left: delivered or sent; null while it waits.
    delivery TEXT CHECK (delivery IN ('delivered', 'sent')),
    PRIMARY KEY (session, seq),
    UNIQUE (session, message_id)
) STRICT;

-- The newest context of a session that is not over.
CREATE TABLE voice_contexts (
    session BLOB PRIMARY KEY REFERENCES voice_sessions (id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- Webhooks that were taken in, by their ids.
CREATE TABLE voice_webhooks (
    id TEXT PRIMARY KEY,
    received_at INTEGER NOT NULL
) STRICT;
CREATE INDEX voice_webhooks_received ON voice_webhooks (received_at);

-- Seconds per day (UTC, by the start of the session) and user; the empty user is everybody.
CREATE TABLE voice_usage (
    day TEXT NOT NULL,
    user_id TEXT NOT NULL,
    seconds INTEGER NOT NULL,
    PRIMARY KEY (day, user_id)
) STRICT;

-- Work that one replica does for all, and when it is due next.
CREATE TABLE voice_chores (
    name TEXT PRIMARY KEY,
    due_at INTEGER NOT NULL
) STRICT;
