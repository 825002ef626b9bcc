//! The rules of this service, without I/O: access levels, valid changes, page bounds, link secrets.

pub(crate) mod access;
pub(crate) mod attention;
pub(crate) mod hint;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod look;
pub(crate) mod message;
pub(crate) mod public_link;
pub(crate) mod push;
pub(crate) mod session;
pub(crate) mod share;
pub(crate) mod stream;

/// A value that breaks a rule. `pointer` is a JSON Pointer into the body, or `?name` for a query parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer} {detail}")]
pub(crate) struct Invalid {
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

impl Invalid {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}
