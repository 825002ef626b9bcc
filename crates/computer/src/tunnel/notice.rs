//! What a person should know of a tunnel while it runs.

use std::fmt;
use std::time::Duration;

use crate::error::Error;

#[derive(Debug)]
pub enum Notice {
    /// Anyone can come.
    Public {
        makes_accounts: bool,
    },
    /// It ends the encryption of the connection.
    SeenBy(String),
    /// It was seen from outside that others reach the server.
    Reached(String),
    NotReached {
        address: String,
        why: Error,
    },
    /// `why`: in the words of its program.
    Ended {
        was_reached: bool,
        why: String,
    },
    /// A new start would have another address, so there is none.
    NewAddress,
    StartsAgain(Duration),
    NotStarted(Error),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public { makes_accounts } => {
                let accounts = if *makes_accounts {
                    "REGISTRATION lets them make accounts"
                } else {
                    "New accounts need an invitation"
                };
                write!(f, "Through this tunnel anyone on the internet reaches this server. {accounts}.")
            }
            Self::SeenBy(who) => write!(
                f,
                "{who} ends the encryption of the connection: it sees who is connected and what is not sealed, and it could give your phone \
                 another page and act as it. `ensemble web` and the command line do not depend on it."
            ),
            Self::Reached(address) => write!(f, "Others reach this server at {address}"),
            Self::NotReached { address, why } => write!(f, "{why} `ensemble phone {address}` looks again."),
            Self::Ended { was_reached, why } => {
                let ended = if *was_reached { "has ended" } else { "does not begin" };
                write!(f, "The tunnel {ended}: {}.", why.trim_end_matches('.'))
            }
            Self::NewAddress => f.write_str("A new start of `ensemble up --tunnel` has a new address."),
            Self::StartsAgain(after) => write!(f, "It is started again in {} s.", after.as_secs()),
            Self::NotStarted(why) => why.fmt(f),
        }
    }
}
