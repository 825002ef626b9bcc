//! What is on the screen, as text.

mod calling;
mod cards;
mod composer;
mod digits;
mod guests;
mod hostile;
mod narrow;
mod questions;
mod random;
mod session;
mod talk;
mod together;
mod transcript;
mod waiting;
