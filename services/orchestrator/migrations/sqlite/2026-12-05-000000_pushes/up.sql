-- Runs that have ended, of which identity notifies the owner's devices. A row goes when identity has it.
CREATE TABLE pushes (
    run_id    BLOB PRIMARY KEY,
    owner_id  BLOB NOT NULL,
    kind      TEXT NOT NULL,
    attention TEXT NOT NULL,
    -- When it is given. While somebody gives it, later than the deadline of a call.
    due_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX pushes_due ON pushes (due_at);
