-- Runs that have ended, of which identity notifies the owner's devices. A row goes when identity has it.
CREATE TABLE pushes (
    run_id    uuid PRIMARY KEY,
    owner_id  uuid NOT NULL,
    kind      text NOT NULL,
    attention text NOT NULL,
    -- When it is given. While somebody gives it, later than the deadline of a call.
    due_at    timestamptz NOT NULL
);

CREATE INDEX pushes_due ON pushes (due_at);
