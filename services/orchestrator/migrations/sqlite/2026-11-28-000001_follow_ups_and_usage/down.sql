DROP TABLE usage_days;
DROP TABLE task_messages;
ALTER TABLE task_specs DROP COLUMN stale;
ALTER TABLE task_specs DROP COLUMN follow_up_fence;
ALTER TABLE task_specs DROP COLUMN follow_up;
