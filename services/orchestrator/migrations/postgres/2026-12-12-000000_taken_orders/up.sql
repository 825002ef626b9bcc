-- The machine has said that it carries the open order out.
ALTER TABLE task_changes ADD COLUMN order_taken boolean NOT NULL DEFAULT false;
