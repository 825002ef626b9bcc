//! The orchestrator through its public interface: runs, waits, leases, outputs, machines and faults.
#![cfg(test)]

mod fixture;

mod briefs;
mod cancelling;
mod client_ids;
mod cost;
mod costs;
mod deletion_races;
mod dependencies;
mod events;
mod faults;
mod follow_ups;
mod granting;
mod handed_back;
mod hot_updates;
mod leases;
mod lifecycle;
mod losses;
mod machines;
mod memory;
mod one_caller;
mod open_providers;
mod outputs;
mod owners;
mod permissions;
mod provider_limits;
mod pushes;
mod quotas;
mod refs;
mod refusals;
mod restarts;
mod retrying;
mod run_deletion;
mod runs;
mod scale;
mod sealed;
mod settling;
mod signed;
mod statements;
mod task_changes;
mod usage;
mod waiting;
mod wakes;
