-- Which tools of the server the agent of a session has called. A call is recorded before it is carried out.
CREATE TABLE voice_tool_calls (
    session BLOB NOT NULL REFERENCES voice_sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- The run that was asked for, where it is one.
    subject TEXT,
    called_at INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT;
