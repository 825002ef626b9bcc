-- Eight random characters of Crockford's base 32, which people can type. The service makes them for new rows. SQLite cannot add a
-- column that is NOT NULL with a default that differs from row to row.
ALTER TABLE machines ADD COLUMN ref TEXT;
CREATE UNIQUE INDEX machines_ref ON machines (ref);

-- A row whose ref is taken is left out. With a million rows that is one in the first pass, and none in the others.
UPDATE OR IGNORE machines SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE ref IS NULL;
UPDATE OR IGNORE machines SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE ref IS NULL;
UPDATE OR IGNORE machines SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE ref IS NULL;
