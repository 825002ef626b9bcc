//! The orchestrator as its callers see it: runs, waits, leases, outputs, machines, faults.
#![cfg(test)]

mod world;

mod cancelling;
mod cost;
mod dependencies;
mod events;
mod faults;
mod granting;
mod leases;
mod losses;
mod machines;
mod memory;
mod outputs;
mod refusals;
mod restarts;
mod retrying;
mod runs;
mod scale;
mod waiting;
mod walk;
