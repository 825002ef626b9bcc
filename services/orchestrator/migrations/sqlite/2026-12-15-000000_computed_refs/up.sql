-- A ref is computed from the id, so that nobody gives one. The service computes it for new rows, and has the function for these.

DROP INDEX runs_ref;
UPDATE runs SET ref = ref_of_id(id);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE runs SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE id NOT IN (SELECT min(id) FROM runs GROUP BY owner_id, ref);
CREATE UNIQUE INDEX runs_ref ON runs (owner_id, ref);

DROP INDEX task_specs_ref;
UPDATE task_specs SET ref = ref_of_id(task_id);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE task_specs SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE task_id NOT IN (SELECT min(task_id) FROM task_specs GROUP BY ref);
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
