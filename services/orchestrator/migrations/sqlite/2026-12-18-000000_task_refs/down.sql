-- Of several accounts that have one ref the first keeps it, because it is unique in the table again. The others' tasks are found by
-- their ids.
DROP INDEX task_specs_ref;
UPDATE task_specs SET ref = NULL WHERE task_id IN (
    SELECT task_id FROM (
        SELECT task_id, row_number() OVER (PARTITION BY ref ORDER BY task_id) AS place FROM task_specs
    ) AS placed WHERE place > 1
);
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
