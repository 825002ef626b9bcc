//! Medians and spreads of a few rounds.

/// The rounds of one figure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match (sorted.get(middle), middle.checked_sub(1).and_then(|m| sorted.get(m))) {
            (Some(high), Some(low)) if sorted.len().is_multiple_of(2) => (high + low) / 2.0,
            (Some(only), _) => *only,
            (None, _) => f64::NAN,
        }
    }

    pub(crate) fn lowest(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn highest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The ratio to the baseline in each round, so that a slow minute affects both.
    pub(crate) fn ratio(&self, baseline: &Self) -> Self {
        Self(self.0.iter().zip(&baseline.0).map(|(ours, theirs)| ours / theirs).collect())
    }
}
