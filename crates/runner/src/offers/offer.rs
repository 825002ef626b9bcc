//! A provider's program, or the reason why it cannot be offered.

use std::path::PathBuf;

use ensemble_types::runs::Provider;

/// A provider on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub provider: Provider,
    /// The program that tasks may use, or why it is not offered.
    pub program: Result<PathBuf, NotOffered>,
    pub version: Option<String>,
    /// `None` when the program does not say it.
    pub signed_in: Option<bool>,
}

/// Why a provider is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOffered {
    /// `PROVIDER_NOT_AVAILABLE` or `PROVIDER_NOT_SIGNED_IN`.
    pub code: &'static str,
    /// For people.
    pub reason: String,
}

impl NotOffered {
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self { code: "PROVIDER_NOT_AVAILABLE", reason: reason.into() }
    }

    pub(crate) fn not_signed_in(advice: &str) -> Self {
        Self { code: "PROVIDER_NOT_SIGNED_IN", reason: format!("not signed in: {advice}") }
    }
}
