-- The rows keep their refs. Of several accounts that have one ref the first keeps it, because it is unique in the table again.
DROP INDEX runs_ref;
UPDATE runs SET ref = DEFAULT WHERE (id) IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY ref ORDER BY id) AS place FROM runs
    ) AS placed WHERE place > 1
);
CREATE UNIQUE INDEX runs_ref ON runs (ref);
DROP INDEX task_specs_ref;
CREATE UNIQUE INDEX task_specs_ref ON task_specs (ref);
