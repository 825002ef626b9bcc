-- What people said to a task after its end. The newest is what its agent is told next; attempts after this fence tell it.
ALTER TABLE task_specs ADD COLUMN follow_up TEXT;
ALTER TABLE task_specs ADD COLUMN follow_up_fence INTEGER;
-- A task that it depends on was continued after this one had begun.
ALTER TABLE task_specs ADD COLUMN stale INTEGER NOT NULL DEFAULT 0;

-- A message with an id that is here does nothing again.
CREATE TABLE task_messages (
    task_id    BLOB NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (task_id, message_id)
) STRICT;

-- What attempts cost, by the day (UTC, counted from 1970-01-01) on which they ended. It stays when runs are deleted.
CREATE TABLE usage_days (
    owner_id      BLOB             NOT NULL,
    day           INTEGER          NOT NULL,
    machine_id    TEXT             NOT NULL,
    provider      TEXT             NOT NULL,
    attempts      INTEGER          NOT NULL,
    input_tokens  INTEGER          NOT NULL,
    output_tokens INTEGER          NOT NULL,
    cost_usd      REAL             NOT NULL,
    PRIMARY KEY (owner_id, day, machine_id, provider)
) STRICT;

-- Of the attempts before, only the last of each task is known.
INSERT INTO usage_days
SELECT owner_id, finished_at / 86400000000 AS day, ran_on, provider, count(*),
    COALESCE(sum(input_tokens), 0), COALESCE(sum(output_tokens), 0), COALESCE(sum(cost_usd), 0.0)
FROM tasks
WHERE finished_at IS NOT NULL AND ran_on IS NOT NULL
    AND (input_tokens IS NOT NULL OR output_tokens IS NOT NULL OR cost_usd IS NOT NULL)
GROUP BY owner_id, day, ran_on, provider;
