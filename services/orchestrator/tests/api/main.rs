//! The orchestrator as its callers see it: runs, waits, leases, outputs, machines, faults.
#![cfg(test)]

mod world;

mod walk;
mod runs;
mod refusals;
mod dependencies;
mod granting;
mod leases;
mod losses;
mod cancelling;
mod retrying;
mod waiting;
mod events;
mod outputs;
mod machines;
mod scale;
mod faults;
mod cost;
