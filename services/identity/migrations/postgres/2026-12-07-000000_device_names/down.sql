ALTER TABLE devices DROP COLUMN name_salt;
