-- A provider's usage limit is reached on a machine, which gets no task of that provider while the row is here. The timers delete
-- it when its time has come.
CREATE TABLE provider_holds (
    owner_id   uuid NOT NULL,
    machine_id text NOT NULL,
    provider   text NOT NULL,
    held_until timestamptz NOT NULL,
    PRIMARY KEY (owner_id, machine_id, provider)
);
CREATE INDEX provider_holds_end ON provider_holds (held_until);

-- What the attempts of a task may cost together, what they have cost since a person started it, and how often they ended at the
-- provider's usage limit.
ALTER TABLE task_specs ADD COLUMN max_cost_usd double precision;
ALTER TABLE task_specs ADD COLUMN spent_usd double precision NOT NULL DEFAULT 0;
ALTER TABLE task_specs ADD COLUMN quota_waits integer NOT NULL DEFAULT 0;
-- What the attempts that used this session of the provider have cost. Some programs report it again when they resume it.
ALTER TABLE task_specs ADD COLUMN session_cost_usd double precision NOT NULL DEFAULT 0;
ALTER TABLE task_specs ADD COLUMN session_cost_of text;
