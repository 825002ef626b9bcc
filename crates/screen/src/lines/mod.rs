//! What commands print without a screen: coloured lines, tables that fit the terminal, times and costs, and how a run fares.

pub mod changes;
pub mod cost;
pub mod denials;
pub mod ended;
mod output;
pub mod progress;
mod styled;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
pub mod when;

use ensemble_types::ids::MachineId;

pub use output::{AgentOutput, is_of_tool};
pub use styled::{Styled, Tone, cut, cut_middle, wrap};
pub use table::{Column, Table};

/// How people read of machines.
pub trait Machines {
    fn called(&self, id: &MachineId) -> String;

    /// Where the configuration of a machine's runner is.
    fn runner_file(&self, id: Option<&MachineId>) -> String;

    /// A text of the server with names in place of the ids of machines, and times of this place.
    fn explain(&self, text: &str) -> String;
}
