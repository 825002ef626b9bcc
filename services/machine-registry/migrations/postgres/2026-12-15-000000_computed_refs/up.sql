-- A ref is computed from the id, so that nobody gives one: the first 40 bits of SHA-256 of "ensemble-ref-v1", a line feed and the id, in
-- Crockford's base 32. The service computes it for new rows.
CREATE FUNCTION pg_temp.ref_of(id text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((bits >> (35 - 5 * at)) & 31)::integer, 1), '' ORDER BY at)
    FROM generate_series(0, 7) AS at,
        (SELECT ('x' || encode(substr(sha256(convert_to('ensemble-ref-v1' || chr(10) || id, 'UTF8')), 1, 5), 'hex'))::bit(40)::bigint AS bits) AS hashed
$$;

DROP INDEX machines_ref;
UPDATE machines SET ref = pg_temp.ref_of(id::text);
-- Of two rows with one ref the older id keeps it. The other is found by its id alone.
UPDATE machines SET ref = DEFAULT WHERE (owner_id, id) IN (
    SELECT owner_id, id FROM (
        SELECT owner_id, id, row_number() OVER (PARTITION BY owner_id, ref ORDER BY id) AS place FROM machines
    ) AS placed WHERE place > 1
);
CREATE UNIQUE INDEX machines_ref ON machines (owner_id, ref);
