ALTER TABLE sessions DROP COLUMN host_id;
DROP INDEX sessions_that_want;
ALTER TABLE sessions DROP COLUMN attention_version;
ALTER TABLE sessions DROP COLUMN attention_id;
ALTER TABLE sessions DROP COLUMN attention_since;
ALTER TABLE sessions DROP COLUMN attention_open;
ALTER TABLE sessions DROP COLUMN attention_kind;
