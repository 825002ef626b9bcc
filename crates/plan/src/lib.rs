//! Plan files: a run as people write it (YAML or JSON), converted to the request of the interface.
//!
//! Beyond the interface a plan has `defaults` for its tasks, prompts in files, relative directories, variables, and
//! durations such as `10m`. An unknown field is an error, because it is nearly always a typing mistake.

mod cost;
mod draft;
mod error;
mod fields;
mod file;
mod files;
mod ids;
mod order;
mod schema;
mod sessions;
mod variables;

use std::ops::RangeInclusive;
use std::time::Duration;

pub use self::cost::{BOUNDS_OF_COST, is_cost, is_reported, limits};
pub use self::draft::{Draft, Overrides, Step, read};
pub use self::error::Error;
pub use self::files::{LONGEST_PLAN, LONGEST_PROMPT, PromptFiles, read_file, read_text};
pub use self::schema::SCHEMA;
pub use self::sessions::Seal;
pub use self::variables::{Variables, assignment};

/// What the server takes as the timeout of a task.
pub const TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// `90s`, `10m`, `12h`, `7d`.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}
