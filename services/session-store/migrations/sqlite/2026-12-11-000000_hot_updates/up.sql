-- PostgreSQL looks at the columns of all indexes when it decides whether an update has to write to them, also at those of partial ones
-- that do not hold the row. Each append changes `updated_at` and each heartbeat `last_active_at`, so no index may hold them.
DROP INDEX sessions_at_work;
CREATE INDEX sessions_at_work ON sessions (id) WHERE hosted AND thinking AND deleted_at IS NULL;
DROP INDEX sessions_over;
CREATE INDEX sessions_over ON sessions (id) WHERE (ended_at IS NOT NULL OR archived) AND deleted_at IS NULL;
