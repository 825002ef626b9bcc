//! What commands print without a screen: coloured lines and tables that fit the terminal.

mod styled;
mod table;

pub use styled::{Styled, Tone, cut, cut_middle, wrap};
pub use table::{Column, Table};
