-- Clients choose the ids of runs and tasks. An id is unique across all accounts, and each row also has its owner. A statement names the
-- owner as well as the id, so it never finds a row of another account.

-- For replicas of the previous release, which do not set the owner.
CREATE FUNCTION owner_of_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT owner_id INTO NEW.owner_id FROM tasks WHERE id = NEW.task_id;
    RETURN NEW;
END
$$;
CREATE FUNCTION owner_of_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT owner_id INTO NEW.owner_id FROM leases WHERE id = NEW.lease_id;
    RETURN NEW;
END
$$;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['task_specs', 'dependencies', 'task_permissions', 'task_sessions', 'task_signatures', 'task_messages',
        'task_diffs', 'task_diff_ends', 'ended_tasks']
    LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN owner_id uuid', name);
        EXECUTE format('UPDATE %1$I SET owner_id = tasks.owner_id FROM tasks WHERE tasks.id = %1$I.task_id', name);
        -- A row that belongs to no task is never read.
        EXECUTE format('DELETE FROM %I WHERE owner_id IS NULL', name);
        EXECUTE format('ALTER TABLE %I ALTER COLUMN owner_id SET NOT NULL', name);
        EXECUTE format('CREATE TRIGGER set_owner BEFORE INSERT ON %I FOR EACH ROW WHEN (NEW.owner_id IS NULL) '
            'EXECUTE FUNCTION owner_of_task()', name);
    END LOOP;
END
$$;

ALTER TABLE output_chunks ADD COLUMN owner_id uuid;
UPDATE output_chunks SET owner_id = leases.owner_id FROM leases WHERE leases.id = output_chunks.lease_id;
DELETE FROM output_chunks WHERE owner_id IS NULL;
ALTER TABLE output_chunks ALTER COLUMN owner_id SET NOT NULL;
CREATE TRIGGER set_owner BEFORE INSERT ON output_chunks FOR EACH ROW WHEN (NEW.owner_id IS NULL) EXECUTE FUNCTION owner_of_attempt();

-- The dependents of a task are read from the index alone.
DROP INDEX dependencies_reverse;
CREATE INDEX dependencies_reverse ON dependencies (depends_on, task_id) INCLUDE (owner_id);

-- Runs that were deleted before their owner was recorded, and that are not purged.
UPDATE deleted_runs SET owner_id = tasks.owner_id FROM tasks
    WHERE tasks.run_id = deleted_runs.run_id AND deleted_runs.owner_id = '00000000-0000-0000-0000-000000000000';
