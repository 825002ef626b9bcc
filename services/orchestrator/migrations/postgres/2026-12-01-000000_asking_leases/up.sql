-- The attempts that wait for an answer of a person. They leave their places in the run to others, so they are counted often.
CREATE INDEX leases_that_ask ON leases (run_id) WHERE waiting_for = 'input' AND ended_at IS NULL;
