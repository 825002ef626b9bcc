-- What opens the commitment to the name in the list.
ALTER TABLE devices ADD COLUMN name_salt TEXT;
