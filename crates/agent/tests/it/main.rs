//! The drivers with recorded wires, with hostile ones, and with the real programs.

mod hostile;
mod live;
mod replay;
mod stories;
mod summary;
mod wire;
