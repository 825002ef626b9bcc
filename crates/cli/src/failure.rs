//! What goes wrong, said in sentences that say what to do.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use ensemble_client::Error;
use ensemble_client::seal::SealError;
use ensemble_types::problem::Code;

pub(crate) type Result<T = ExitCode, E = Failure> = std::result::Result<T, E>;

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The service, or the way to it.
    Client(Box<Error>),
    /// Something encrypted. The first part says what.
    Seal(String, SealError),
    /// Anything else, as a sentence.
    Said(String),
    /// Whoever read our output has gone; nothing to say, and nobody to hear it.
    NobodyReads,
}

impl Failure {
    pub(crate) fn said(sentence: impl Into<String>) -> Self {
        Self::Said(sentence.into())
    }

    /// Tells it on standard error and gives the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if matches!(self, Self::NobodyReads) {
            return ExitCode::SUCCESS;
        }
        let text = if json { self.as_json().to_string() } else { format!("error: {self}") };
        // When not even standard error can be written to, the code has to do.
        let _unheard = writeln!(io::stderr(), "{text}");
        ExitCode::FAILURE
    }

    fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Client(error) => match error.as_ref() {
                Error::Problem(problem) => serde_json::json!({ "error": problem }),
                _ => serde_json::json!({ "error": { "detail": self.to_string() } }),
            },
            _ => serde_json::json!({ "error": { "detail": self.to_string() } }),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => f.write_str(&of_client(error)),
            Self::Seal(what, error) => write!(f, "{what} cannot be decrypted or encrypted: {error}."),
            Self::Said(sentence) => f.write_str(sentence),
            Self::NobodyReads => Ok(()),
        }
    }
}

fn of_client(error: &Error) -> String {
    let Error::Problem(problem) = error else { return of_the_way(error) };
    let mut text = match problem.code {
        Code::Unauthenticated => "The server does not accept your sign-in. Run `ensemble login`.".to_owned(),
        Code::RegistrationClosed => {
            "This server takes no new accounts. Ask whoever runs it, or import your key with `ensemble login --key FILE`."
                .to_owned()
        }
        Code::MachineNotFound => "You have no machine with this id. `ensemble machine list` shows what you have.".to_owned(),
        Code::UserNotFound => "There is no user with this id. They see theirs with `ensemble whoami`.".to_owned(),
        Code::LinkNotFound => {
            "This link does not work: it is unknown, expired, used up, or was taken back. Ask for a new one.".to_owned()
        }
        Code::VersionMismatch => "Somebody else changed it in the meantime. Look at it again, then repeat.".to_owned(),
        Code::RateLimited => match problem.retry_after {
            Some(seconds) => format!("Too many requests. Try again in {seconds} s."),
            None => "Too many requests. Try again in a while.".to_owned(),
        },
        Code::Unavailable | Code::UpstreamError | Code::UpstreamTimeout => {
            format!("The server cannot do this at the moment: {} Try again in a while.", sentence(&problem.detail))
        }
        _ => sentence(&problem.detail),
    };
    for field in &problem.errors {
        text.push_str(&format!("\n  {}: {}", field.pointer, field.detail));
    }
    if problem.code.status() >= 500 && !problem.request_id.is_empty() {
        text.push_str(&format!("\n  (request {})", problem.request_id));
    }
    text
}

fn of_the_way(error: &Error) -> String {
    match error {
        Error::Unreachable { origin, .. } => format!(
            "Nothing answers at {origin}. Start a server there with `ensemble up`, or name another with --server."
        ),
        Error::Broken { origin, .. } => format!("The connection to {origin} broke. Try again."),
        Error::Silent { origin, waited } => {
            format!("No answer from {origin} within {} s. Try again, or look at the server.", waited.as_secs())
        }
        Error::Foreign { origin, status } => {
            format!(
                "What answers at {origin} (with {status}) is not this service. Check the address given with --server."
            )
        }
        Error::Address(address) => {
            format!(
                "{address:?} is not an address. Give one that begins with http:// or https://, such as http://127.0.0.1:8080."
            )
        }
        Error::Unreadable { call, source } => {
            format!(
                "The answer to {call} is not what this version of `ensemble` expects ({source}). Are both up to date?"
            )
        }
        Error::StreamEnded { reason } => format!("The server has ended the stream: {reason}."),
        Error::Setup(source) => format!("TLS could not be set up ({source}). Are the system's certificates installed?"),
        other => sentence(&other.to_string()),
    }
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let mut out: String = characters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    out.push_str(characters.as_str());
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::NobodyReads
        } else {
            Self::Said(sentence(&error.to_string()))
        }
    }
}
