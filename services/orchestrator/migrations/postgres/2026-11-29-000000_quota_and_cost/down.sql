ALTER TABLE task_specs DROP COLUMN session_cost_of;
ALTER TABLE task_specs DROP COLUMN session_cost_usd;
ALTER TABLE task_specs DROP COLUMN quota_waits;
ALTER TABLE task_specs DROP COLUMN spent_usd;
ALTER TABLE task_specs DROP COLUMN max_cost_usd;
DROP TABLE provider_holds;
