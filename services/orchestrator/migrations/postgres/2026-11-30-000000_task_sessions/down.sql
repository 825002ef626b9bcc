DROP TABLE task_sessions;
