-- Tombstones: the last deletion of each machine. They are kept for 90 days, which is longer than a token or a lease lives.
CREATE TABLE deleted_machines (
    owner_id      uuid NOT NULL,
    machine_id    text NOT NULL,
    -- By the clock of machine-registry. A machine that was created later is another one with the same id.
    deleted_at    timestamptz NOT NULL,
    -- By the clock of this database. What was granted or submitted until then belongs to the deleted machine. NULL until the
    -- transactions have ended that could not see this row.
    ended_until   timestamptz,
    -- When a machine with the same id was created after the deletion, as far as this service knows.
    registered_at timestamptz,
    PRIMARY KEY (owner_id, machine_id)
);

CREATE INDEX deleted_machines_oldest_first ON deleted_machines (deleted_at);
