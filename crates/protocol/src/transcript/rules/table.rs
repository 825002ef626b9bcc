//! The table of rights: which command needs what.

use crate::transcript::body::{Content, Control};
use crate::transcript::words::Mode;

/// What a person may command in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    Nothing,
    /// A guest who may prompt, interrupt, and take back what they have sent.
    Prompt,
    /// A guest who may answer requests as well.
    Approve,
    /// A linked device of the owner.
    Linked,
    /// A primary device of the owner.
    Primary,
}

/// Whether this right is enough for this command.
pub fn may(right: &Right, command: &Content) -> bool {
    let needed = match command {
        // Whose prompt it is that is taken back, the host knows.
        Content::Prompt(_) | Content::Control(Control::Interrupt | Control::TakeBack(_)) => Right::Prompt,
        Content::Answer(_) | Content::Control(Control::SetModel(_)) => Right::Approve,
        Content::Control(Control::SetMode(set)) => match set.mode {
            Mode::Ask | Mode::Plan | Mode::Edit => Right::Linked,
            Mode::Bypass | Mode::Other(_) => Right::Primary,
        },
        Content::Control(Control::Stop | Control::Resume(_) | Control::Access(_)) => Right::Linked,
        _ => return false,
    };
    *right >= needed
}
