-- A task that is a live session or begins one. `task_specs.prompt` is empty for it: what its machine does is sealed for that machine.
-- `session_id` is the session, once there is one.
CREATE TABLE task_sessions (
    task_id    uuid PRIMARY KEY,
    kind       text NOT NULL CHECK (kind IN ('turn', 'start')),
    sealed     text NOT NULL,
    session_id uuid
);
