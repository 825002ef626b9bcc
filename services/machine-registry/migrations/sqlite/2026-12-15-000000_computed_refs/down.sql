-- The rows keep their refs.
DROP INDEX machines_ref;
CREATE UNIQUE INDEX machines_ref ON machines (ref);
