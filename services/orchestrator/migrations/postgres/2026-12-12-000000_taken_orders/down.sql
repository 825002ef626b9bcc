ALTER TABLE task_changes DROP COLUMN order_taken;
