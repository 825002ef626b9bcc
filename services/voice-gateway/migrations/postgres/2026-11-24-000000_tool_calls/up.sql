-- Which tools of the server the agent of a session has called. A call is recorded before it is carried out.
CREATE TABLE voice_tool_calls (
    session uuid NOT NULL REFERENCES voice_sessions (id) ON DELETE CASCADE,
    seq bigint NOT NULL,
    name text NOT NULL,
    -- The run that was asked for, where it is one.
    subject text,
    called_at timestamptz NOT NULL,
    PRIMARY KEY (session, seq)
);
