//! The public door: one file per noun, one function per verb.

pub(crate) mod machines;
