-- Tombstones: the last deletion of each machine. They are kept for 90 days, which is longer than a token or a lease lives.
CREATE TABLE deleted_machines (
    owner_id      BLOB NOT NULL,
    machine_id    TEXT NOT NULL,
    -- By the clock of machine-registry. A machine that was created later is another one with the same id.
    deleted_at    INTEGER NOT NULL,
    -- By the clock of this database. What was granted or submitted until then belongs to the deleted machine. NULL until the
    -- transactions have ended that could not see this row.
    ended_until   INTEGER,
    -- When a machine with the same id was created after the deletion, as far as this service knows.
    registered_at INTEGER,
    PRIMARY KEY (owner_id, machine_id)
) STRICT;

CREATE INDEX deleted_machines_oldest_first ON deleted_machines (deleted_at);
