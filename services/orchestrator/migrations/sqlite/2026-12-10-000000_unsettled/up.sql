-- SQLite removes a constraint only together with its table (sqlite.org/lang_altertable.html, section 7): runs_canceling goes,
-- because the queued tasks of a cancelled run are cancelled one batch after the other.
CREATE TABLE runs_new (
    id                BLOB    PRIMARY KEY,
    owner_id          BLOB    NOT NULL,
    title             TEXT,
    status            TEXT    NOT NULL,
    cancel_reason     TEXT,
    max_concurrency   INTEGER NOT NULL CHECK (max_concurrency BETWEEN 1 AND 64),
    spread            INTEGER NOT NULL,
    -- Some of its tasks are pinned to machines.
    pinned            INTEGER NOT NULL,
    -- The machine that leased the first task without a machine of its own.
    machine_id        TEXT,
    traceparent       TEXT,
    -- How many tasks have which status. A transaction that changes a task changes these counts.
    total             INTEGER NOT NULL,
    queued            INTEGER NOT NULL,
    running           INTEGER NOT NULL,
    completed         INTEGER NOT NULL,
    failed            INTEGER NOT NULL,
    cancelled         INTEGER NOT NULL,
    -- Queued tasks that wait for nothing but a runner.
    ready             INTEGER NOT NULL,
    version           INTEGER NOT NULL,
    -- When a task of it was last leased. The runs of an account take turns by this time.
    served_at         INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    started_at        INTEGER,
    finished_at       INTEGER,
    stored_bytes      INTEGER NOT NULL DEFAULT 0,
    wanted_machine_id TEXT,
    ref               TEXT,
    -- What a change means for a whole run is done in small transactions: the first one with the change, the others by a
    -- worker. Something of it is left to do.
    unsettled         INTEGER NOT NULL DEFAULT 0,
    -- After a retry: the tasks from this position on are to be queued again, unless they have this version or a later one.
    requeue_from      INTEGER,
    requeue_version   INTEGER,
    CONSTRAINT runs_status CHECK (status IN ('queued', 'running', 'canceling', 'completed', 'failed', 'cancelled')),
    CONSTRAINT runs_counts CHECK (queued >= 0 AND running >= 0 AND completed >= 0 AND failed >= 0 AND cancelled >= 0
        AND total = queued + running + completed + failed + cancelled AND ready BETWEEN 0 AND queued),
    CONSTRAINT runs_finished CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT runs_terminal CHECK (status NOT IN ('completed', 'failed', 'cancelled') OR queued + running = 0),
    CONSTRAINT runs_open CHECK (status NOT IN ('queued', 'running', 'canceling') OR queued + running > 0),
    CONSTRAINT runs_queued CHECK (status <> 'queued' OR running = 0),
    CONSTRAINT runs_completed CHECK (status <> 'completed' OR failed + cancelled = 0),
    CONSTRAINT runs_failed CHECK (status <> 'failed' OR failed > 0)
) STRICT;

INSERT INTO runs_new (id, owner_id, title, status, cancel_reason, max_concurrency, spread, pinned, machine_id, traceparent, total, queued,
    running, completed, failed, cancelled, ready, version, served_at, created_at, updated_at, started_at, finished_at,
    stored_bytes, wanted_machine_id, ref)
SELECT id, owner_id, title, status, cancel_reason, max_concurrency, spread, pinned, machine_id, traceparent, total, queued,
    running, completed, failed, cancelled, ready, version, served_at, created_at, updated_at, started_at, finished_at,
    stored_bytes, wanted_machine_id, ref
FROM runs;
DROP TABLE runs;
ALTER TABLE runs_new RENAME TO runs;

CREATE INDEX runs_newest_first ON runs (owner_id, created_at DESC, id DESC);
CREATE INDEX runs_active ON runs (owner_id) WHERE finished_at IS NULL;
CREATE INDEX runs_to_serve ON runs (owner_id, served_at) WHERE ready > 0;
CREATE INDEX runs_stored_bytes ON runs (owner_id, stored_bytes);
CREATE UNIQUE INDEX runs_ref ON runs (ref);
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_unsettled ON runs (id) WHERE unsettled;

-- Tasks that have ended, and of which not all dependents are told.
CREATE TABLE ended_tasks (
    run_id     BLOB NOT NULL,
    task_id    BLOB NOT NULL,
    -- The last dependent that is told, in the order of the ids. NULL before the first.
    told_until BLOB,
    PRIMARY KEY (run_id, task_id)
) STRICT;
