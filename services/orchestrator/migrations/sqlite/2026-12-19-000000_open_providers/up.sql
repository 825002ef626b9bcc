-- Any agent can do tasks. The service checks the name, and that a machine of the account offers it. SQLite drops a condition of a
-- column only with the column.
ALTER TABLE tasks ADD COLUMN any_provider TEXT NOT NULL DEFAULT '';
UPDATE tasks SET any_provider = provider;
ALTER TABLE tasks DROP COLUMN provider;
ALTER TABLE tasks RENAME COLUMN any_provider TO provider;
