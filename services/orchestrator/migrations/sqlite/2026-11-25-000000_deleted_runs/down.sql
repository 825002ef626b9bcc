DROP TABLE deleted_runs;
