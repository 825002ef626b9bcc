-- Eight random characters of Crockford's base 32, which people can type. The service makes them for new rows. SQLite cannot add a
-- column that is NOT NULL with a default that differs from row to row.
ALTER TABLE sessions ADD COLUMN ref TEXT;
CREATE UNIQUE INDEX sessions_ref ON sessions (ref);

-- A row whose ref is taken is left out. With a million rows that is one in the first pass, and none in the others.
UPDATE OR IGNORE sessions SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE ref IS NULL;
UPDATE OR IGNORE sessions SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE ref IS NULL;
UPDATE OR IGNORE sessions SET ref =
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (random() & 31), 1)
WHERE ref IS NULL;
