-- What was said, as the agent reported it: the newest 500 of a session, until a while after its end.
CREATE TABLE voice_utterances (
    session BLOB NOT NULL REFERENCES voice_sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    -- The agent's id of it, so that a repetition is recognised.
    agent_id TEXT,
    role TEXT NOT NULL,
    body TEXT NOT NULL,
    -- It was longer.
    cut INTEGER NOT NULL,
    said_at INTEGER NOT NULL,
    PRIMARY KEY (session, seq),
    UNIQUE (session, agent_id)
) STRICT;

-- For the list of a user's sessions.
CREATE INDEX voice_sessions_of_user ON voice_sessions (user_id, created_at DESC, id DESC);
