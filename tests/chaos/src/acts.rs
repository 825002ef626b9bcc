//! What is done to the town, drawn from the seed.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

/// One act. Links and services by their place in the town.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    KillService(usize),
    /// Killed, and started again after a while.
    KillDatabase(Duration),
    /// Stopped in an orderly way, and started again.
    RestartDatabase,
    Slow(usize, Duration),
    Cut(usize, Duration),
    Swallow(usize, Duration),
}

impl Act {
    pub(crate) fn draw(random: &mut StdRng, services: usize, links: usize) -> Self {
        let moment = Duration::from_millis(random.gen_range(200..2_000));
        match random.gen_range(0..10) {
            0..4 => Self::KillService(random.gen_range(0..services)),
            4 => Self::KillDatabase(moment),
            5 => Self::RestartDatabase,
            6 | 7 => Self::Slow(random.gen_range(0..links), moment),
            8 => Self::Cut(random.gen_range(0..links), moment),
            _ => Self::Swallow(random.gen_range(0..links), moment),
        }
    }
}
