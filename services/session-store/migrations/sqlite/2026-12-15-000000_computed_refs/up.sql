-- A ref is computed from the id, so that nobody gives one. The service computes it for new rows, and has the function for these.

DROP INDEX sessions_ref;
UPDATE sessions SET ref = ref_of_id(id);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE sessions SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE id NOT IN (SELECT min(id) FROM sessions GROUP BY ref);
CREATE UNIQUE INDEX sessions_ref ON sessions (ref);
