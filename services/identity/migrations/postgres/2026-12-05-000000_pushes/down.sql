DROP TABLE push_deliveries;
DROP TABLE push_events;
DROP TABLE push_subscriptions;
DROP TABLE push_keys;
ALTER TABLE devices DROP COLUMN notify;
