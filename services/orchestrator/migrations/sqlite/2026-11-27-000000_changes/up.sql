-- Where the agent works: `none` when null. `base_task` is the task that `base` names; without it, `base` is a git ref.
ALTER TABLE task_specs ADD COLUMN isolation TEXT;
ALTER TABLE task_specs ADD COLUMN base TEXT;
ALTER TABLE task_specs ADD COLUMN base_task BLOB;

-- What an attempt that has not begun waits for, and since when. Its timeout stands still meanwhile.
ALTER TABLE leases ADD COLUMN waiting_for TEXT;
ALTER TABLE leases ADD COLUMN waiting_since INTEGER;
CREATE INDEX leases_that_wait ON leases (task_id) WHERE waiting_for IS NOT NULL AND ended_at IS NULL;

-- What the last attempt of a task changed, and what becomes of it. `files` and `conflicted` are JSON.
CREATE TABLE task_changes (
    task_id      BLOB    PRIMARY KEY,
    run_id       BLOB    NOT NULL,
    owner_id     BLOB    NOT NULL,
    -- The machine that has the worktree.
    machine_id   TEXT    NOT NULL,
    state        TEXT    NOT NULL
        CHECK (state IN ('none', 'kept', 'applying', 'applied', 'conflicted', 'discarding', 'discarded', 'lost')),
    files        TEXT    NOT NULL,
    file_count   INTEGER     NOT NULL,
    added        INTEGER     NOT NULL,
    removed      INTEGER     NOT NULL,
    uncommitted  INTEGER     NOT NULL,
    conflicted   TEXT    NOT NULL,
    -- The last order to the machine. It is open until `order_until`, which is null when its result is known.
    order_id     BLOB,
    order_until  INTEGER,
    -- The state that comes back when the order is not carried out.
    state_before TEXT,
    CHECK ((state IN ('applying', 'discarding')) = (order_until IS NOT NULL))
) STRICT;
CREATE INDEX task_changes_of_machine ON task_changes (owner_id, machine_id);
CREATE INDEX task_changes_order ON task_changes (order_id);
CREATE INDEX task_changes_order_until ON task_changes (order_until) WHERE order_until IS NOT NULL;

-- The diff of a task's last attempt that sent one: in one part, whose path is empty, or one for each file. A part is stored in
-- pieces, because a reader that takes nothing should hold little.
CREATE TABLE task_diffs (
    task_id BLOB NOT NULL,
    path    TEXT NOT NULL,
    piece   INTEGER NOT NULL,
    data    TEXT NOT NULL,
    -- Of `data`, in bytes.
    size    INTEGER NOT NULL,
    PRIMARY KEY (task_id, path, piece)
) STRICT;
CREATE TABLE task_diff_ends (
    task_id      BLOB PRIMARY KEY,
    -- The attempt that sent the parts.
    fence        INTEGER  NOT NULL,
    stored_bytes INTEGER  NOT NULL,
    truncated    INTEGER NOT NULL
) STRICT;
