DROP TABLE task_signatures;
