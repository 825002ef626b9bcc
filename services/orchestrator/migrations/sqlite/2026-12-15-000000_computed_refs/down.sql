-- The rows keep their refs. Of several accounts that have one ref the first keeps it, because it is unique in the table again.
DROP INDEX runs_ref;
UPDATE runs SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE id NOT IN (SELECT min(id) FROM runs GROUP BY ref);
CREATE UNIQUE INDEX runs_ref ON runs (ref);
DROP INDEX task_specs_ref;
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
