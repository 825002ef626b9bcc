-- Deleted runs whose tasks and output are still there. The run's own row is deleted with the request; a worker removes the
-- rest in small transactions, and the row here last.
CREATE TABLE deleted_runs (
    run_id BLOB PRIMARY KEY
) STRICT;
