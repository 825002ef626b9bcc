//! Why a conversation did not begin, or ended.

use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Account(#[from] ensemble_account::Error),
    /// What happens could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The program that joins the room cannot use this part of it.
    #[error("The {what} cannot be used: {why}.")]
    Room { what: String, why: String },
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
