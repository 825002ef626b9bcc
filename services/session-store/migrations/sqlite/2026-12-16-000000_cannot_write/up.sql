-- Why its machine cannot write in it, as the last heartbeat has said: 0 to 3.
ALTER TABLE sessions ADD COLUMN cannot_write INTEGER;
