DROP INDEX sessions_at_work;
CREATE INDEX sessions_at_work ON sessions (last_active_at) WHERE hosted AND thinking AND deleted_at IS NULL;
DROP INDEX sessions_over;
CREATE INDEX sessions_over ON sessions (updated_at) WHERE (ended_at IS NOT NULL OR archived) AND deleted_at IS NULL;
