//! The orchestrator as its callers see it: runs, waits, leases, outputs, machines, faults.
#![cfg(test)]

mod world;

mod walk;
