-- Any agent can do tasks. The service checks the name, and that a machine of the account offers it.
ALTER TABLE tasks DROP CONSTRAINT tasks_provider_check;
