-- This fails while there is a task of another provider. Delete its run first.
ALTER TABLE tasks ADD CONSTRAINT tasks_provider_check CHECK (provider IN ('claude', 'codex', 'gemini'));
