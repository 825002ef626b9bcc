//! The public listener: one file per noun, one function per verb.

pub(crate) mod machines;
