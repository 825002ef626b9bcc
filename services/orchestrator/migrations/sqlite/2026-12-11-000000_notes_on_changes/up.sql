-- It is not known what was changed.
ALTER TABLE task_changes ADD COLUMN is_unknown INTEGER NOT NULL DEFAULT 0;
-- What people should know of the changes: why they are not known, or what is in the worktree and in no commit. JSON.
ALTER TABLE task_changes ADD COLUMN notes TEXT NOT NULL DEFAULT '[]';
-- Why the machine could not carry out the last order.
ALTER TABLE task_changes ADD COLUMN failure TEXT;
