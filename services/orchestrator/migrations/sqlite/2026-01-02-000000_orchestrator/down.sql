DROP TABLE runners;
DROP TABLE output_chunks;
DROP TABLE leases;
DROP TABLE dependencies;
DROP TABLE task_specs;
DROP TABLE tasks;
DROP TABLE runs;
