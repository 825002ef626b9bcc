-- Sessions that are over, and for how long nothing has changed in them.
CREATE INDEX sessions_over ON sessions (updated_at) WHERE (ended_at IS NOT NULL OR archived) AND deleted_at IS NULL;
