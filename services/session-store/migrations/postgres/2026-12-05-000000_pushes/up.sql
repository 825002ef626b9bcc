-- When the agent last began to think.
ALTER TABLE sessions ADD COLUMN thinking_since timestamptz;
CREATE INDEX sessions_at_work ON sessions (last_active_at) WHERE hosted AND thinking AND deleted_at IS NULL;

-- What devices are notified of. A row goes when identity has it, or, while it may have to be taken back, when the session wants
-- something else.
CREATE TABLE pushes (
    session_id uuid NOT NULL,
    attention  text NOT NULL,
    owner_id   uuid NOT NULL,
    -- Empty: what was given is to be taken back.
    kind       text NOT NULL,
    -- Somebody gives it, or identity has it.
    taken      boolean NOT NULL,
    -- When it is given. While somebody gives it, later than the deadline of a call. Null: identity has it.
    due_at     timestamptz,
    PRIMARY KEY (session_id, attention)
);

CREATE INDEX pushes_due ON pushes (due_at) WHERE due_at IS NOT NULL;
