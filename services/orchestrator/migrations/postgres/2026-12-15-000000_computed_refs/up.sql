-- A ref is computed from the id, so that nobody gives one: the first 40 bits of SHA-256 of "ensemble-ref-v1", a line feed and the id, in
-- Crockford's base 32. The service computes it for new rows.
CREATE FUNCTION pg_temp.ref_of(id text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((bits >> (35 - 5 * at)) & 31)::integer, 1), '' ORDER BY at)
    FROM generate_series(0, 7) AS at,
        (SELECT ('x' || encode(substr(sha256(convert_to('ensemble-ref-v1' || chr(10) || id, 'UTF8')), 1, 5), 'hex'))::bit(40)::bigint AS bits) AS hashed
$$;

DROP INDEX runs_ref;
UPDATE runs SET ref = pg_temp.ref_of(id::text);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE runs SET ref = DEFAULT WHERE (id) IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY owner_id, ref ORDER BY id) AS place FROM runs
    ) AS placed WHERE place > 1
);
CREATE UNIQUE INDEX runs_ref ON runs (owner_id, ref);

DROP INDEX task_specs_ref;
UPDATE task_specs SET ref = pg_temp.ref_of(task_id::text);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE task_specs SET ref = DEFAULT WHERE (task_id) IN (
    SELECT task_id FROM (
        SELECT task_id, row_number() OVER (PARTITION BY ref ORDER BY task_id) AS place FROM task_specs
    ) AS placed WHERE place > 1
);
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
