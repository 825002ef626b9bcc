DROP TABLE runners, output_chunks, leases, dependencies, task_specs, tasks, runs;
