-- Runs that ended long ago are found without reading the others.
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
