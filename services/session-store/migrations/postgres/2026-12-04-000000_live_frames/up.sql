-- Live frames on their way to the other replicas: for some seconds, and not in the log, so that they wait for no disk. `number` is
-- the time in microseconds.
CREATE UNLOGGED TABLE live_frames (
    session_id uuid NOT NULL,
    number bigint NOT NULL,
    content text NOT NULL,
    PRIMARY KEY (session_id, number)
);
-- Ciphertext does not compress; trying costs time.
ALTER TABLE live_frames ALTER COLUMN content SET STORAGE EXTERNAL;
