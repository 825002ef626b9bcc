DROP INDEX leases_that_ask;
