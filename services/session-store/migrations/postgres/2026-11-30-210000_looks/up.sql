-- Looks on their way between the replicas: until they are answered, and not in the log, so that they wait for no disk.
CREATE UNLOGGED TABLE looks (
    id uuid PRIMARY KEY,
    owner_id uuid NOT NULL,
    machine_id text NOT NULL,
    session_id uuid,
    question text NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A replica has taken it for the machine.
    sent boolean NOT NULL DEFAULT false,
    answer text
);
-- Ciphertext does not compress; trying costs time.
ALTER TABLE looks ALTER COLUMN question SET STORAGE EXTERNAL, ALTER COLUMN answer SET STORAGE EXTERNAL;
