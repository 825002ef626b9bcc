-- What devices of the owner have signed about a task: the task itself, the newest message to its agent, and the newest order about its
-- changes. The service stores it and hands it to the task's machine unchanged, and shows it to nobody else.
CREATE TABLE task_signatures (
    task_id uuid NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('task', 'message', 'order')),
    key     text NOT NULL,
    sig     text NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (task_id, kind)
);
