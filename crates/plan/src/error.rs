//! What is wrong with a plan.

/// Why there is no run of a plan.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A person has written it to an agent.
    #[error("{name} is not a plan but a text.")]
    Prose { name: String },
    #[error("{name} is not a plan: {why}.")]
    NoPlan { name: String, why: String },
    /// Any other mistake, as a sentence.
    #[error("{0}")]
    Wrong(String),
}
