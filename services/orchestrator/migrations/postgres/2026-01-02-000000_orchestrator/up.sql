-- No foreign keys: the rows of a run are inserted together and never deleted, and checking 100,000 dependencies would cost
-- more than inserting them.

CREATE TABLE runs (
    id              uuid        PRIMARY KEY,
    owner_id        uuid        NOT NULL,
    title           text,
    status          text        NOT NULL,
    cancel_reason   text,
    max_concurrency integer     NOT NULL CHECK (max_concurrency BETWEEN 1 AND 64),
    spread          boolean     NOT NULL,
    -- Some of its tasks are pinned to machines.
    pinned          boolean     NOT NULL,
    -- The machine that leased the first task without a machine of its own.
    machine_id      text,
    traceparent     text,
    -- How many tasks have which status. A transaction that changes a task changes these counts.
    total           integer     NOT NULL,
    queued          integer     NOT NULL,
    running         integer     NOT NULL,
    completed       integer     NOT NULL,
    failed          integer     NOT NULL,
    cancelled       integer     NOT NULL,
    -- Queued tasks that wait for nothing but a runner.
    ready           integer     NOT NULL,
    version         bigint      NOT NULL,
    -- When a task of it was last leased. The runs of an account take turns by this time.
    served_at       timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz,
    CONSTRAINT runs_status CHECK (status IN ('queued', 'running', 'canceling', 'completed', 'failed', 'cancelled')),
    CONSTRAINT runs_counts CHECK (queued >= 0 AND running >= 0 AND completed >= 0 AND failed >= 0 AND cancelled >= 0
        AND total = queued + running + completed + failed + cancelled AND ready BETWEEN 0 AND queued),
    CONSTRAINT runs_finished CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT runs_terminal CHECK (status NOT IN ('completed', 'failed', 'cancelled') OR queued + running = 0),
    CONSTRAINT runs_open CHECK (status NOT IN ('queued', 'running', 'canceling') OR queued + running > 0),
    CONSTRAINT runs_queued CHECK (status <> 'queued' OR running = 0),
    CONSTRAINT runs_canceling CHECK (status <> 'canceling' OR queued = 0),
    CONSTRAINT runs_completed CHECK (status <> 'completed' OR failed + cancelled = 0),
    CONSTRAINT runs_failed CHECK (status <> 'failed' OR failed > 0)
) WITH (fillfactor = 70);

CREATE INDEX runs_newest_first ON runs (owner_id, created_at DESC, id DESC);
CREATE INDEX runs_active ON runs (owner_id) WHERE finished_at IS NULL;
CREATE INDEX runs_to_serve ON runs (owner_id, served_at) WHERE ready > 0;

-- The state of a task. Its constant part is in task_specs, so that these rows stay small.
CREATE TABLE tasks (
    id                  uuid        PRIMARY KEY,
    run_id              uuid        NOT NULL,
    owner_id            uuid        NOT NULL,
    position            integer     NOT NULL,
    provider            text        NOT NULL CHECK (provider IN ('claude', 'codex', 'gemini')),
    -- The machine that it is pinned to.
    machine_id          text,
    templated           boolean     NOT NULL,
    -- How many tasks depend on this one. If there are none, its end needs no search for them.
    dependents          integer     NOT NULL,
    timeout_ms          bigint      NOT NULL,
    max_attempts        integer     NOT NULL,
    backoff_ms          bigint      NOT NULL,
    backoff_factor      double precision NOT NULL,
    status              text        NOT NULL,
    -- Incremented by each lease. It is the fence of the lease.
    attempt             integer     NOT NULL,
    -- Dependencies that have not completed.
    open_deps           integer     NOT NULL CHECK (open_deps >= 0),
    -- Failed attempts, and attempts whose machine was lost, since the task was submitted or retried.
    failures            integer     NOT NULL,
    losses              integer     NOT NULL CHECK (losses >= 0),
    -- The end of the pause before the next attempt.
    not_before          timestamptz,
    -- The run's version of its last change.
    version             bigint      NOT NULL,
    -- The machine of the last attempt.
    ran_on              text,
    error_code          text,
    error_message       text,
    output_summary      text,
    exit_code           integer,
    input_tokens        bigint,
    output_tokens       bigint,
    cost_usd            double precision,
    provider_session_id text,
    created_at          timestamptz NOT NULL,
    started_at          timestamptz,
    finished_at         timestamptz,
    CONSTRAINT tasks_status CHECK (status IN
        ('queued', 'dispatching', 'running', 'completed', 'failed', 'cancelled', 'dependency_failed')),
    CONSTRAINT tasks_finished CHECK
        ((status IN ('completed', 'failed', 'cancelled', 'dependency_failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT tasks_held CHECK
        (status NOT IN ('dispatching', 'running') OR (open_deps = 0 AND attempt > 0 AND ran_on IS NOT NULL)),
    CONSTRAINT tasks_completed CHECK (status <> 'completed' OR (attempt > 0 AND error_code IS NULL)),
    CONSTRAINT tasks_failed CHECK (status NOT IN ('failed', 'dependency_failed') OR error_code IS NOT NULL),
    CONSTRAINT tasks_pause CHECK (not_before IS NULL OR status = 'queued')
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX tasks_in_order ON tasks (run_id, position);
CREATE INDEX tasks_ready ON tasks (run_id, position) WHERE status = 'queued' AND open_deps = 0 AND not_before IS NULL;
CREATE INDEX tasks_changed ON tasks (run_id, version);
CREATE INDEX tasks_paused ON tasks (not_before) WHERE not_before IS NOT NULL;
CREATE INDEX tasks_pinned ON tasks (owner_id, machine_id) WHERE machine_id IS NOT NULL AND finished_at IS NULL;

CREATE TABLE task_specs (
    task_id           uuid PRIMARY KEY,
    task_key          text,
    title             text,
    prompt            text NOT NULL,
    model             text,
    working_directory text
);

-- The task task_id depends on the task depends_on.
CREATE TABLE dependencies (
    task_id    uuid    NOT NULL,
    place      integer NOT NULL,
    depends_on uuid    NOT NULL,
    PRIMARY KEY (task_id, place)
);

CREATE INDEX dependencies_reverse ON dependencies (depends_on, task_id);

CREATE TABLE leases (
    id               uuid        PRIMARY KEY,
    run_id           uuid        NOT NULL,
    task_id          uuid        NOT NULL,
    owner_id         uuid        NOT NULL,
    machine_id       text        NOT NULL,
    attempt          integer     NOT NULL,
    granted_at       timestamptz NOT NULL,
    beaten_at        timestamptz,
    -- The end of the lease, as the runner knows it.
    expires_at       timestamptz NOT NULL,
    -- The end of the attempt, even if the runner still sends heartbeats. NULL before the first heartbeat.
    timeout_at       timestamptz,
    -- When the timers have to act: the first heartbeat is missing, the lease expires, or the attempt times out.
    due_at           timestamptz NOT NULL,
    cancel_requested boolean     NOT NULL,
    ended_at         timestamptz,
    -- How it ended. After a report also what became of the task, so that a repeated report gets the same response.
    end_reason       text CHECK (end_reason IN ('finished', 'unbeaten', 'expired', 'timeout', 'deleted')),
    outcome          text,
    -- Bytes of output that arrived, and bytes that are stored.
    output_length    bigint      NOT NULL,
    output_stored    bigint      NOT NULL,
    output_cut       boolean     NOT NULL,
    CONSTRAINT leases_ended CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CONSTRAINT leases_outcome CHECK ((end_reason = 'finished') = (outcome IS NOT NULL) OR end_reason IS NULL)
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX leases_one_open ON leases (task_id) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX leases_attempt ON leases (task_id, attempt);
CREATE INDEX leases_due ON leases (due_at) WHERE ended_at IS NULL;
CREATE INDEX leases_of_run ON leases (run_id) WHERE ended_at IS NULL;
CREATE INDEX leases_of_machine ON leases (owner_id, machine_id) WHERE ended_at IS NULL;

CREATE TABLE output_chunks (
    lease_id uuid   NOT NULL,
    start_at bigint NOT NULL,
    data     bytea  NOT NULL,
    PRIMARY KEY (lease_id, start_at)
);

-- Runners that requested leases recently. With them, tasks report whether they wait for a machine.
CREATE TABLE runners (
    owner_id   uuid        NOT NULL,
    machine_id text        NOT NULL,
    providers  text        NOT NULL,
    seen_until timestamptz NOT NULL,
    PRIMARY KEY (owner_id, machine_id)
);
