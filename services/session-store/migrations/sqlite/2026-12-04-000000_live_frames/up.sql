-- One process hands live frames on without a table.
SELECT 1;
