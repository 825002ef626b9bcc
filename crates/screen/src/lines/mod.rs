//! What commands print without a screen: coloured lines, tables that fit the terminal, and times.

mod styled;
mod table;
pub mod when;

pub use styled::{Styled, Tone, cut, cut_middle, wrap};
pub use table::{Column, Table};
