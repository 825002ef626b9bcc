-- The rows keep their refs. Of several accounts that have one ref the first keeps it, because it is unique in the table again.
DROP INDEX machines_ref;
UPDATE machines SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE (owner_id, id) NOT IN (SELECT owner_id, min(id) FROM machines GROUP BY ref);
CREATE UNIQUE INDEX machines_ref ON machines (ref);
