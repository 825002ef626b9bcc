//! Loops that run as long as the service does.

mod farewell;

pub(crate) use farewell::Farewell;
