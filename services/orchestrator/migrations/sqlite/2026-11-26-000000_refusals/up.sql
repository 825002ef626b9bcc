-- A machine that cannot run a task hands it back before the agent starts. Such a lease is an attempt for the fence, which
-- rises with each lease, and none for people: they see `attempt - refusals`.
ALTER TABLE tasks ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0;
-- How many leases of the task were handed back before this one, and whether this one was.
ALTER TABLE leases ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
-- The runner has answered the request to cancel, so it need not be repeated.
ALTER TABLE leases ADD COLUMN cancel_received INTEGER NOT NULL DEFAULT 0;

-- Since the task was submitted or retried. A machine with a row here does not get the task again, unless the row is void:
-- the machine has begun to offer the provider again.
CREATE TABLE task_refusals (
    task_id    BLOB        NOT NULL,
    fence      INTEGER     NOT NULL,
    run_id     BLOB        NOT NULL,
    owner_id   BLOB        NOT NULL,
    machine_id TEXT        NOT NULL,
    provider   TEXT        NOT NULL,
    code       TEXT        NOT NULL,
    message    TEXT        NOT NULL,
    is_void    INTEGER     NOT NULL,
    refused_at INTEGER     NOT NULL,
    PRIMARY KEY (task_id, fence)
) STRICT;
CREATE INDEX task_refusals_of_run ON task_refusals (run_id);
CREATE INDEX task_refusals_of_machine ON task_refusals (owner_id, machine_id) WHERE NOT is_void;

-- What the agent may do without asking, as it was submitted. `allowed_tools` is a JSON array of strings.
ALTER TABLE task_specs ADD COLUMN permission TEXT;
ALTER TABLE task_specs ADD COLUMN allowed_tools TEXT;
ALTER TABLE task_specs ADD COLUMN fail_on_denial INTEGER NOT NULL DEFAULT 0;

-- What the agent was allowed to do in the last attempt that ended with a report, and what it was refused: how often, and a
-- JSON array of the first refusals.
CREATE TABLE task_permissions (
    task_id      BLOB PRIMARY KEY,
    permission   TEXT,
    denial_count INTEGER NOT NULL,
    denials      TEXT NOT NULL
) STRICT;
-- The machine that the owner chose for the tasks that do not name one.
ALTER TABLE runs ADD COLUMN wanted_machine_id TEXT;
-- How many attempts the runner runs at once at most.
ALTER TABLE runners ADD COLUMN slots INTEGER;
