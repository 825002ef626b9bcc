-- One process passes looks on without a table.
SELECT 1;
