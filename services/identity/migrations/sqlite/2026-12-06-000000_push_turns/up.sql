-- Accounts are notified in turn, and each has little under way.
CREATE INDEX push_deliveries_of_account ON push_deliveries (user_id, due_at);
