//! The rows of the table, one file for each area.

mod edge;
mod first_key;
mod fixture;
mod held;
mod history;
mod hostile_memory;
mod idle;
mod large_runs;
pub(crate) mod live_agent;
mod live_client;
mod live_host;
mod live_latency;
mod live_many;
mod one_bad_caller;
mod purge;
mod removal;
mod run_latency;
mod runs;
pub(crate) mod scripted_claude;
mod sessions;
mod slow_clients;
mod voice;

use anyhow::Result;

use crate::machine::{Machine, Options};
use crate::table::Report;

/// A row that can be measured by itself: `make bench ROWS="append history"`.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Machine, &Options, &mut Report) -> Result<()>,
}

pub(crate) const ALL: &[Row] = &[
    Row { name: "append", measure: sessions::append },
    Row { name: "history", measure: history::pages },
    Row { name: "history-long", measure: history::long },
    Row { name: "lists", measure: sessions::lists },
    Row { name: "heartbeat", measure: sessions::heartbeat },
    Row { name: "streams", measure: sessions::streams },
    Row { name: "purge", measure: purge::during_appends },
    Row { name: "edge", measure: edge::against_nginx },
    Row { name: "slow-clients", measure: slow_clients::normal_clients },
    Row { name: "large-bodies", measure: held::large_bodies },
    Row { name: "hostile-memory", measure: hostile_memory::held_against_us },
    Row { name: "one-bad-caller", measure: one_bad_caller::other_account },
    Row { name: "idle-streams", measure: held::idle_streams },
    Row { name: "runs", measure: runs::throughput },
    Row { name: "run-shapes", measure: runs::shapes },
    Row { name: "large-runs", measure: large_runs::changes },
    Row { name: "large-runs-memory", measure: large_runs::memory },
    Row { name: "run-latency", measure: run_latency::latency },
    Row { name: "live-agent", measure: live_agent::live },
    Row { name: "live-latency", measure: live_latency::latency },
    Row { name: "live-many", measure: live_many::latency },
    Row { name: "removal", measure: removal::of_a_device },
    Row { name: "first-key", measure: first_key::after_a_removal },
    Row { name: "voice", measure: voice::starts },
    Row { name: "idle", measure: idle::memory_and_start },
];
