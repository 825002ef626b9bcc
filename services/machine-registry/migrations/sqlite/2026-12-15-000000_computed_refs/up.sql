-- A ref is computed from the id, so that nobody gives one. The service computes it for new rows, and has the function for these.

DROP INDEX machines_ref;
UPDATE machines SET ref = ref_of_name(id);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE machines SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE (owner_id, id) NOT IN (SELECT owner_id, min(id) FROM machines GROUP BY owner_id, ref);
CREATE UNIQUE INDEX machines_ref ON machines (owner_id, ref);
