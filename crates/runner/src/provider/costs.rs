//! What an attempt may cost, and what its session had cost before it.

/// The bounds of one attempt. By default it has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CostBounds {
    pub(crate) max: Option<f64>,
    /// What the session that it resumes has cost. Some programs report it once more.
    pub(crate) before: f64,
}

impl CostBounds {
    /// The bound for a program whose own counter begins with what its session has cost, or with nothing.
    pub(super) fn on_the_counter(self, is_resumed: bool) -> Option<f64> {
        self.max.map(|max| if is_resumed { max + self.before } else { max })
    }
}

/// The first version of Claude Code whose costs continue from those of the session that it resumes.
const COSTS_CONTINUE: [u32; 3] = [2, 1, 277];

/// Whether this version of Claude Code reports the costs of the session's earlier processes again.
pub(super) fn repeats_costs(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    let known = [numbers.next(), numbers.next(), numbers.next()].map(|number| number.flatten().unwrap_or(0_u32));
    known >= COSTS_CONTINUE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_report_what_was_spent_before() {
        for (version, repeats) in
            [("2.1.276", false), ("2.1.277", true), ("2.2.0", true), ("3.0.0", true), ("1.9.999", false), ("", false)]
        {
            assert_eq!(repeats_costs(version), repeats, "{version}");
        }
    }
}
