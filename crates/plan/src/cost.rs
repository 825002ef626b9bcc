//! Limits of what a task may cost.

use ensemble_types::runs::Provider;

pub const BOUNDS_OF_COST: &str = "must be more than 0, and at most 1000000";

/// Whether a task may have this as its `maxCostUsd`.
pub fn is_cost(max: f64) -> bool {
    max > 0.0 && max <= 1_000_000.0
}

/// Whether a provider's program says what it costs. With another one a limit of cost is not kept.
pub const fn is_reported(provider: Provider) -> bool {
    matches!(provider, Provider::Claude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_more_than_nothing_and_bounded() {
        assert!(is_cost(0.01) && is_cost(1e6));
        assert!(![0.0, -1.0, f64::NAN, f64::INFINITY, 1_000_001.0].into_iter().any(is_cost));
    }
}
