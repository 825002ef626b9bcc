//! Why no connection could be made: read from the chain of errors below the HTTP client.

use std::error::Error as StdError;
use std::io;

/// Why no connection could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoConnection {
    /// The host's name has no address.
    UnknownHost,
    /// Nothing listens on the port.
    Refused,
    /// No answer to the attempts to connect.
    TimedOut,
    /// The other side does not speak TLS.
    NotTls,
    /// The server's certificate is not accepted, with the reason.
    Certificate(String),
    /// Anything else, as the system says it.
    Other(String),
}

impl NoConnection {
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let mut next: Option<&(dyn StdError + 'static)> = Some(error);
        let mut last = error.to_string();
        while let Some(current) = next {
            if let Some(why) = Self::of_one(current) {
                return why;
            }
            last = current.to_string();
            next = current.source();
        }
        if error.is_timeout() { Self::TimedOut } else { Self::Other(last) }
    }

    fn of_one(error: &(dyn StdError + 'static)) -> Option<Self> {
        // The type of this error is private, so its text is compared. The test would notice a change.
        if error.to_string() == "dns error" {
            return Some(Self::UnknownHost);
        }
        match error.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(why)) => return Some(Self::Certificate(why.to_string())),
            Some(rustls::Error::InvalidMessage(_)) => return Some(Self::NotTls),
            _ => {}
        }
        let io = error.downcast_ref::<io::Error>()?;
        // `source` of an I/O error leaves out the error that it wraps.
        if let Some(inner) = io.get_ref() {
            return Self::of_one(inner);
        }
        match io.kind() {
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::TimedOut => Some(Self::TimedOut),
            _ => None,
        }
    }
}
