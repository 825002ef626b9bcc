-- This fails while there is a task of another provider. Delete its run first.
ALTER TABLE tasks ADD COLUMN old_provider TEXT NOT NULL DEFAULT 'claude' CHECK (old_provider IN ('claude', 'codex', 'gemini'));
UPDATE tasks SET old_provider = provider;
ALTER TABLE tasks DROP COLUMN provider;
ALTER TABLE tasks RENAME COLUMN old_provider TO provider;
