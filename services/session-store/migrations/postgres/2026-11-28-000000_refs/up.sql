-- Eight random characters of Crockford's base 32, which people can type. The service makes them; the default is for the rows
-- that there are, and for replicas of the release before.
ALTER TABLE sessions ADD COLUMN ref text COLLATE "C" NOT NULL DEFAULT (
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1) ||
    substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + floor(random() * 32)::integer, 1)
);

-- Gives the later of two rows with the same ref another one, until there are no such rows.
DO $$
BEGIN
    LOOP
        UPDATE sessions SET ref = DEFAULT WHERE (id) IN (
            SELECT id FROM (
                SELECT id, row_number() OVER (PARTITION BY ref ORDER BY id) AS place FROM sessions
            ) AS placed WHERE place > 1
        );
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

CREATE UNIQUE INDEX sessions_ref ON sessions (ref);
