//! What is on the screen, as text.

mod cards;
mod composer;
mod hostile;
mod random;
mod session;
mod talk;
mod transcript;
