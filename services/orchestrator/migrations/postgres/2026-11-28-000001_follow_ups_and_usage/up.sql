-- What people said to a task after its end. The newest is what its agent is told next; attempts after this fence tell it.
ALTER TABLE task_specs ADD COLUMN follow_up text;
ALTER TABLE task_specs ADD COLUMN follow_up_fence integer;
-- A task that it depends on was continued after this one had begun.
ALTER TABLE task_specs ADD COLUMN stale boolean NOT NULL DEFAULT false;

-- A message with an id that is here does nothing again.
CREATE TABLE task_messages (
    task_id    uuid NOT NULL,
    message_id text NOT NULL,
    PRIMARY KEY (task_id, message_id)
);

-- What attempts cost, by the day (UTC, counted from 1970-01-01) on which they ended. It stays when runs are deleted.
CREATE TABLE usage_days (
    owner_id      uuid             NOT NULL,
    day           integer          NOT NULL,
    machine_id    text             NOT NULL,
    provider      text             NOT NULL,
    attempts      bigint           NOT NULL,
    input_tokens  bigint           NOT NULL,
    output_tokens bigint           NOT NULL,
    cost_usd      double precision NOT NULL,
    PRIMARY KEY (owner_id, day, machine_id, provider)
);

-- Of the attempts before, only the last of each task is known.
INSERT INTO usage_days
SELECT owner_id, floor(extract(epoch FROM finished_at) / 86400)::integer AS day, ran_on, provider, count(*),
    COALESCE(sum(input_tokens), 0), COALESCE(sum(output_tokens), 0), COALESCE(sum(cost_usd), 0)
FROM tasks
WHERE finished_at IS NOT NULL AND ran_on IS NOT NULL
    AND (input_tokens IS NOT NULL OR output_tokens IS NOT NULL OR cost_usd IS NOT NULL)
GROUP BY owner_id, day, ran_on, provider;
