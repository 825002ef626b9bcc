-- Eight random characters of Crockford's base 32, which people can type. The service makes them; the default is for the rows
-- that there are, and for replicas of the release before.
ALTER TABLE machines ADD COLUMN ref text COLLATE "C" NOT NULL DEFAULT (
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
        UPDATE machines SET ref = DEFAULT WHERE (owner_id, id) IN (
            SELECT owner_id, id FROM (
                SELECT owner_id, id, row_number() OVER (PARTITION BY ref ORDER BY owner_id, id) AS place FROM machines
            ) AS placed WHERE place > 1
        );
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

CREATE UNIQUE INDEX machines_ref ON machines (ref);
