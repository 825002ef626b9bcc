-- Clients choose the ids of runs and tasks. An id is unique across all accounts, and each row also has its owner. A statement names the
-- owner as well as the id, so it never finds a row of another account. The tables are rebuilt with the owner before the long columns,
-- because SQLite reads a row from its beginning. Rows that belong to no task are left out: they are never read.

CREATE TABLE task_specs_new (
    task_id           BLOB    PRIMARY KEY,
    owner_id          BLOB    NOT NULL,
    ref               TEXT,
    task_key          TEXT,
    title             TEXT,
    prompt            TEXT    NOT NULL,
    model             TEXT,
    working_directory TEXT,
    permission        TEXT,
    allowed_tools     TEXT,
    fail_on_denial    INTEGER NOT NULL DEFAULT 0,
    isolation         TEXT,
    base              TEXT,
    base_task         BLOB,
    follow_up         TEXT,
    follow_up_fence   INTEGER,
    stale             INTEGER NOT NULL DEFAULT 0,
    max_cost_usd      REAL,
    spent_usd         REAL    NOT NULL DEFAULT 0,
    quota_waits       INTEGER NOT NULL DEFAULT 0,
    session_cost_usd  REAL    NOT NULL DEFAULT 0,
    session_cost_of   TEXT
) STRICT;
INSERT INTO task_specs_new (task_id, owner_id, ref, task_key, title, prompt, model, working_directory, permission, allowed_tools,
    fail_on_denial, isolation, base, base_task, follow_up, follow_up_fence, stale, max_cost_usd, spent_usd, quota_waits,
    session_cost_usd, session_cost_of)
SELECT task_id, tasks.owner_id, ref, task_key, title, prompt, model, working_directory, permission, allowed_tools, fail_on_denial,
    isolation, base, base_task, follow_up, follow_up_fence, stale, max_cost_usd, spent_usd, quota_waits, session_cost_usd,
    session_cost_of
FROM task_specs JOIN tasks ON tasks.id = task_id;
DROP TABLE task_specs;
ALTER TABLE task_specs_new RENAME TO task_specs;
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);

CREATE TABLE dependencies_new (
    task_id    BLOB    NOT NULL,
    owner_id   BLOB    NOT NULL,
    place      INTEGER NOT NULL,
    depends_on BLOB    NOT NULL,
    PRIMARY KEY (task_id, place)
) STRICT;
INSERT INTO dependencies_new (task_id, owner_id, place, depends_on)
SELECT task_id, tasks.owner_id, place, depends_on
FROM dependencies JOIN tasks ON tasks.id = task_id;
DROP TABLE dependencies;
ALTER TABLE dependencies_new RENAME TO dependencies;
-- The dependents of a task are read from the index alone.
CREATE INDEX dependencies_reverse ON dependencies (depends_on, task_id, owner_id);

CREATE TABLE task_permissions_new (
    task_id      BLOB    PRIMARY KEY,
    owner_id     BLOB    NOT NULL,
    permission   TEXT,
    denial_count INTEGER NOT NULL,
    denials      TEXT    NOT NULL
) STRICT;
INSERT INTO task_permissions_new (task_id, owner_id, permission, denial_count, denials)
SELECT task_id, tasks.owner_id, permission, denial_count, denials
FROM task_permissions JOIN tasks ON tasks.id = task_id;
DROP TABLE task_permissions;
ALTER TABLE task_permissions_new RENAME TO task_permissions;

CREATE TABLE task_sessions_new (
    task_id    BLOB PRIMARY KEY,
    owner_id   BLOB NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('turn', 'start')),
    sealed     TEXT NOT NULL,
    session_id BLOB
) STRICT;
INSERT INTO task_sessions_new (task_id, owner_id, kind, sealed, session_id)
SELECT task_id, tasks.owner_id, kind, sealed, session_id
FROM task_sessions JOIN tasks ON tasks.id = task_id;
DROP TABLE task_sessions;
ALTER TABLE task_sessions_new RENAME TO task_sessions;

CREATE TABLE task_signatures_new (
    task_id  BLOB NOT NULL,
    owner_id BLOB NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('task', 'message', 'order')),
    key      TEXT NOT NULL,
    sig      TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (task_id, kind)
) STRICT;
INSERT INTO task_signatures_new (task_id, owner_id, kind, key, sig, body)
SELECT task_id, tasks.owner_id, kind, key, sig, body
FROM task_signatures JOIN tasks ON tasks.id = task_id;
DROP TABLE task_signatures;
ALTER TABLE task_signatures_new RENAME TO task_signatures;

CREATE TABLE task_messages_new (
    task_id    BLOB NOT NULL,
    owner_id   BLOB NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (task_id, message_id)
) STRICT;
INSERT INTO task_messages_new (task_id, owner_id, message_id)
SELECT task_id, tasks.owner_id, message_id
FROM task_messages JOIN tasks ON tasks.id = task_id;
DROP TABLE task_messages;
ALTER TABLE task_messages_new RENAME TO task_messages;

CREATE TABLE task_diffs_new (
    task_id  BLOB    NOT NULL,
    owner_id BLOB    NOT NULL,
    path     TEXT    NOT NULL,
    piece    INTEGER NOT NULL,
    data     TEXT    NOT NULL,
    -- Of `data`, in bytes.
    size     INTEGER NOT NULL,
    PRIMARY KEY (task_id, path, piece)
) STRICT;
INSERT INTO task_diffs_new (task_id, owner_id, path, piece, data, size)
SELECT task_id, tasks.owner_id, path, piece, data, size
FROM task_diffs JOIN tasks ON tasks.id = task_id;
DROP TABLE task_diffs;
ALTER TABLE task_diffs_new RENAME TO task_diffs;

CREATE TABLE task_diff_ends_new (
    task_id      BLOB    PRIMARY KEY,
    owner_id     BLOB    NOT NULL,
    -- The attempt that sent the parts.
    fence        INTEGER NOT NULL,
    stored_bytes INTEGER NOT NULL,
    truncated    INTEGER NOT NULL
) STRICT;
INSERT INTO task_diff_ends_new (task_id, owner_id, fence, stored_bytes, truncated)
SELECT task_id, tasks.owner_id, fence, stored_bytes, truncated
FROM task_diff_ends JOIN tasks ON tasks.id = task_id;
DROP TABLE task_diff_ends;
ALTER TABLE task_diff_ends_new RENAME TO task_diff_ends;

CREATE TABLE ended_tasks_new (
    run_id     BLOB NOT NULL,
    task_id    BLOB NOT NULL,
    owner_id   BLOB NOT NULL,
    -- The last dependent that was notified, in the order of the ids. NULL before the first.
    told_until BLOB,
    PRIMARY KEY (run_id, task_id)
) STRICT;
INSERT INTO ended_tasks_new (run_id, task_id, owner_id, told_until)
SELECT ended_tasks.run_id, task_id, tasks.owner_id, told_until
FROM ended_tasks JOIN tasks ON tasks.id = task_id;
DROP TABLE ended_tasks;
ALTER TABLE ended_tasks_new RENAME TO ended_tasks;

CREATE TABLE output_chunks_new (
    lease_id BLOB    NOT NULL,
    owner_id BLOB    NOT NULL,
    start_at INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    PRIMARY KEY (lease_id, start_at)
) STRICT;
INSERT INTO output_chunks_new (lease_id, owner_id, start_at, data)
SELECT lease_id, leases.owner_id, start_at, data
FROM output_chunks JOIN leases ON leases.id = lease_id;
DROP TABLE output_chunks;
ALTER TABLE output_chunks_new RENAME TO output_chunks;

-- Runs that were deleted before their owner was recorded, and that are not purged.
UPDATE deleted_runs SET owner_id = (SELECT owner_id FROM tasks WHERE run_id = deleted_runs.run_id LIMIT 1)
    WHERE owner_id = zeroblob(16) AND EXISTS (SELECT 1 FROM tasks WHERE run_id = deleted_runs.run_id);
