-- A machine that cannot run a task hands it back before the agent starts. Such a lease is an attempt for the fence, which
-- rises with each lease, and none for people: they see `attempt - refusals`.
ALTER TABLE tasks ADD COLUMN refusals integer NOT NULL DEFAULT 0;
-- How many leases of the task were handed back before this one, and whether this one was.
ALTER TABLE leases ADD COLUMN refusals integer NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN refused boolean NOT NULL DEFAULT false;
-- The runner has answered the request to cancel, so it need not be repeated.
ALTER TABLE leases ADD COLUMN cancel_received boolean NOT NULL DEFAULT false;

-- Since the task was submitted or retried. A machine with a row here does not get the task again, unless the row is void:
-- the machine has begun to offer the provider again.
CREATE TABLE task_refusals (
    task_id    uuid        NOT NULL,
    fence      integer     NOT NULL,
    run_id     uuid        NOT NULL,
    owner_id   uuid        NOT NULL,
    machine_id text        NOT NULL,
    provider   text        NOT NULL,
    code       text        NOT NULL,
    message    text        NOT NULL,
    is_void    boolean     NOT NULL,
    refused_at timestamptz NOT NULL,
    PRIMARY KEY (task_id, fence)
);
CREATE INDEX task_refusals_of_run ON task_refusals (run_id);
CREATE INDEX task_refusals_of_machine ON task_refusals (owner_id, machine_id) WHERE NOT is_void;

-- What the agent may do without asking, as it was submitted. `allowed_tools` is a JSON array of strings.
ALTER TABLE task_specs ADD COLUMN permission text;
ALTER TABLE task_specs ADD COLUMN allowed_tools text;
ALTER TABLE task_specs ADD COLUMN fail_on_denial boolean NOT NULL DEFAULT false;

-- What the agent was allowed to do in the last attempt that ended with a report, and what it was refused: how often, and a
-- JSON array of the first refusals.
CREATE TABLE task_permissions (
    task_id      uuid PRIMARY KEY,
    permission   text,
    denial_count integer NOT NULL,
    denials      text NOT NULL
);
-- The machine that the owner chose for the tasks that do not name one.
ALTER TABLE runs ADD COLUMN wanted_machine_id text;
-- How many attempts the runner runs at once at most.
ALTER TABLE runners ADD COLUMN slots integer;
