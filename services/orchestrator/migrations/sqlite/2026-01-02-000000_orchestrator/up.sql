-- No foreign keys: the rows of a run are inserted together and never deleted, and checking 100,000 dependencies would cost
-- more than inserting them.

CREATE TABLE runs (
    id              BLOB        PRIMARY KEY,
    owner_id        BLOB        NOT NULL,
    title           TEXT,
    status          TEXT        NOT NULL,
    cancel_reason   TEXT,
    max_concurrency INTEGER     NOT NULL CHECK (max_concurrency BETWEEN 1 AND 64),
    spread          INTEGER     NOT NULL,
    -- Some of its tasks are pinned to machines.
    pinned          INTEGER     NOT NULL,
    -- The machine that leased the first task without a machine of its own.
    machine_id      TEXT,
    traceparent     TEXT,
    -- How many tasks have which status. A transaction that changes a task changes these counts.
    total           INTEGER     NOT NULL,
    queued          INTEGER     NOT NULL,
    running         INTEGER     NOT NULL,
    completed       INTEGER     NOT NULL,
    failed          INTEGER     NOT NULL,
    cancelled       INTEGER     NOT NULL,
    -- Queued tasks that wait for nothing but a runner.
    ready           INTEGER     NOT NULL,
    version         INTEGER      NOT NULL,
    -- When a task of it was last leased. The runs of an account take turns by this time.
    served_at       INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    started_at      INTEGER,
    finished_at     INTEGER,
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
) STRICT;

CREATE INDEX runs_newest_first ON runs (owner_id, created_at DESC, id DESC);
CREATE INDEX runs_active ON runs (owner_id) WHERE finished_at IS NULL;
CREATE INDEX runs_to_serve ON runs (owner_id, served_at) WHERE ready > 0;

-- The state of a task. Its constant part is in task_specs, so that these rows stay small.
CREATE TABLE tasks (
    id                  BLOB        PRIMARY KEY,
    run_id              BLOB        NOT NULL,
    owner_id            BLOB        NOT NULL,
    position            INTEGER     NOT NULL,
    provider            TEXT        NOT NULL CHECK (provider IN ('claude', 'codex', 'gemini')),
    -- The machine that it is pinned to.
    machine_id          TEXT,
    templated           INTEGER     NOT NULL,
    -- How many tasks depend on this one. If there are none, its end needs no search for them.
    dependents          INTEGER     NOT NULL,
    timeout_ms          INTEGER      NOT NULL,
    max_attempts        INTEGER     NOT NULL,
    backoff_ms          INTEGER      NOT NULL,
    backoff_factor      REAL NOT NULL,
    status              TEXT        NOT NULL,
    -- Incremented by each lease. It is the fence of the lease.
    attempt             INTEGER     NOT NULL,
    -- Dependencies that have not completed.
    open_deps           INTEGER     NOT NULL CHECK (open_deps >= 0),
    -- Failed attempts, and attempts whose machine was lost, since the task was submitted or retried.
    failures            INTEGER     NOT NULL,
    losses              INTEGER     NOT NULL CHECK (losses >= 0),
    -- The end of the pause before the next attempt.
    not_before          INTEGER,
    -- The run's version of its last change.
    version             INTEGER      NOT NULL,
    -- The machine of the last attempt.
    ran_on              TEXT,
    error_code          TEXT,
    error_message       TEXT,
    output_summary      TEXT,
    exit_code           INTEGER,
    input_tokens        INTEGER,
    output_tokens       INTEGER,
    cost_usd            REAL,
    provider_session_id TEXT,
    created_at          INTEGER NOT NULL,
    started_at          INTEGER,
    finished_at         INTEGER,
    CONSTRAINT tasks_status CHECK (status IN
        ('queued', 'dispatching', 'running', 'completed', 'failed', 'cancelled', 'dependency_failed')),
    CONSTRAINT tasks_finished CHECK
        ((status IN ('completed', 'failed', 'cancelled', 'dependency_failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT tasks_held CHECK
        (status NOT IN ('dispatching', 'running') OR (open_deps = 0 AND attempt > 0 AND ran_on IS NOT NULL)),
    CONSTRAINT tasks_completed CHECK (status <> 'completed' OR (attempt > 0 AND error_code IS NULL)),
    CONSTRAINT tasks_failed CHECK (status NOT IN ('failed', 'dependency_failed') OR error_code IS NOT NULL),
    CONSTRAINT tasks_pause CHECK (not_before IS NULL OR status = 'queued')
) STRICT;

CREATE UNIQUE INDEX tasks_in_order ON tasks (run_id, position);
CREATE INDEX tasks_ready ON tasks (run_id, position) WHERE status = 'queued' AND open_deps = 0 AND not_before IS NULL;
CREATE INDEX tasks_changed ON tasks (run_id, version);
CREATE INDEX tasks_paused ON tasks (not_before) WHERE not_before IS NOT NULL;
CREATE INDEX tasks_pinned ON tasks (owner_id, machine_id) WHERE machine_id IS NOT NULL AND finished_at IS NULL;

CREATE TABLE task_specs (
    task_id           BLOB PRIMARY KEY,
    task_key          TEXT,
    title             TEXT,
    prompt            TEXT NOT NULL,
    model             TEXT,
    working_directory TEXT
) STRICT;

-- The task task_id depends on the task depends_on.
CREATE TABLE dependencies (
    task_id    BLOB    NOT NULL,
    place      INTEGER NOT NULL,
    depends_on BLOB    NOT NULL,
    PRIMARY KEY (task_id, place)
) STRICT;

CREATE INDEX dependencies_reverse ON dependencies (depends_on, task_id);

CREATE TABLE leases (
    id               BLOB        PRIMARY KEY,
    run_id           BLOB        NOT NULL,
    task_id          BLOB        NOT NULL,
    owner_id         BLOB        NOT NULL,
    machine_id       TEXT        NOT NULL,
    attempt          INTEGER     NOT NULL,
    granted_at       INTEGER NOT NULL,
    beaten_at        INTEGER,
    -- The end of the lease, as the runner knows it.
    expires_at       INTEGER NOT NULL,
    -- The end of the attempt, even if the runner still sends heartbeats. NULL before the first heartbeat.
    timeout_at       INTEGER,
    -- When the timers have to act: the first heartbeat is missing, the lease expires, or the attempt times out.
    due_at           INTEGER NOT NULL,
    cancel_requested INTEGER     NOT NULL,
    ended_at         INTEGER,
    -- How it ended. After a report also what became of the task, so that a repeated report gets the same response.
    end_reason       TEXT CHECK (end_reason IN ('finished', 'unbeaten', 'expired', 'timeout', 'deleted')),
    outcome          TEXT,
    -- Bytes of output that arrived, and bytes that are stored.
    output_length    INTEGER      NOT NULL,
    output_stored    INTEGER      NOT NULL,
    output_cut       INTEGER     NOT NULL,
    CONSTRAINT leases_ended CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CONSTRAINT leases_outcome CHECK ((end_reason = 'finished') = (outcome IS NOT NULL) OR end_reason IS NULL)
) STRICT;

CREATE UNIQUE INDEX leases_one_open ON leases (task_id) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX leases_attempt ON leases (task_id, attempt);
CREATE INDEX leases_due ON leases (due_at) WHERE ended_at IS NULL;
CREATE INDEX leases_of_run ON leases (run_id) WHERE ended_at IS NULL;
CREATE INDEX leases_of_machine ON leases (owner_id, machine_id) WHERE ended_at IS NULL;

CREATE TABLE output_chunks (
    lease_id BLOB   NOT NULL,
    start_at INTEGER NOT NULL,
    data     BLOB  NOT NULL,
    PRIMARY KEY (lease_id, start_at)
) STRICT;

-- Runners that requested leases recently. With them, tasks report whether they wait for a machine.
CREATE TABLE runners (
    owner_id   BLOB        NOT NULL,
    machine_id TEXT        NOT NULL,
    providers  TEXT        NOT NULL,
    seen_until INTEGER NOT NULL,
    PRIMARY KEY (owner_id, machine_id)
) STRICT;
