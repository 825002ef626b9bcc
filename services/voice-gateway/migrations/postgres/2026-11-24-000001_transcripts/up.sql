-- What was said, as the agent reported it: the newest 500 of a session, until a while after its end.
CREATE TABLE voice_utterances (
    session uuid NOT NULL REFERENCES voice_sessions (id) ON DELETE CASCADE,
    seq bigint NOT NULL,
    -- The agent's id of it, so that a repetition is recognised.
    agent_id text,
    role text NOT NULL,
    body text NOT NULL,
    -- It was longer.
    cut boolean NOT NULL,
    said_at timestamptz NOT NULL,
    PRIMARY KEY (session, seq),
    UNIQUE (session, agent_id)
);

-- For the list of a user's sessions.
CREATE INDEX voice_sessions_of_user ON voice_sessions (user_id, created_at DESC, id DESC);
