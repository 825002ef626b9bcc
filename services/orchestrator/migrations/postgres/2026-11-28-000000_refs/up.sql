-- Eight random characters of Crockford's base 32, which people can type. The service makes them; the default is for the rows
-- that there are, and for replicas of the release before.
ALTER TABLE runs ADD COLUMN ref text COLLATE "C" NOT NULL DEFAULT (
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
        UPDATE runs SET ref = DEFAULT WHERE (id) IN (
            SELECT id FROM (
                SELECT id, row_number() OVER (PARTITION BY ref ORDER BY id) AS place FROM runs
            ) AS placed WHERE place > 1
        );
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

CREATE UNIQUE INDEX runs_ref ON runs (ref);

-- Eight random characters of Crockford's base 32, which people can type. The service makes them; the default is for the rows
-- that there are, and for replicas of the release before.
ALTER TABLE task_specs ADD COLUMN ref text COLLATE "C" NOT NULL DEFAULT (
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
        UPDATE task_specs SET ref = DEFAULT WHERE (task_id) IN (
            SELECT task_id FROM (
                SELECT task_id, row_number() OVER (PARTITION BY ref ORDER BY task_id) AS place FROM task_specs
            ) AS placed WHERE place > 1
        );
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;

CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
