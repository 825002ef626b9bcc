//! Why something on this computer could not be done.

use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Account(#[from] ensemble_account::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was typed names nothing that there is, as a sentence.
    #[error("{0}")]
    Usage(String),
    /// Any other reason, as a sentence.
    #[error("{0}")]
    Sentence(String),
}

impl Error {
    pub fn sentence(text: impl Into<String>) -> Self {
        Self::Sentence(text.into())
    }
}

impl From<ensemble_client::Error> for Error {
    fn from(error: ensemble_client::Error) -> Self {
        Self::Account(error.into())
    }
}
