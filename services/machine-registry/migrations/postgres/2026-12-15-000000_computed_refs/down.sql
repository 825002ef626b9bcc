-- The rows keep their refs. Of several accounts that have one ref the first keeps it, because it is unique in the table again.
DROP INDEX machines_ref;
UPDATE machines SET ref = DEFAULT WHERE (owner_id, id) IN (
    SELECT owner_id, id FROM (
        SELECT owner_id, id, row_number() OVER (PARTITION BY ref ORDER BY owner_id, id) AS place FROM machines
    ) AS placed WHERE place > 1
);
CREATE UNIQUE INDEX machines_ref ON machines (ref);
