//! The rules, without I/O: who may what, what a change is, where a page ends, what a link's secrets are.

pub(crate) mod access;
pub(crate) mod change;
pub(crate) mod draft;
pub(crate) mod history;
pub(crate) mod link;

/// A value that does not fit; `pointer` is a JSON Pointer into the body, or `?name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

impl Invalid {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}
