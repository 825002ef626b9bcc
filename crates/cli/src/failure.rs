//! Failures of commands, as sentences that say what to do.

use std::fmt;
use std::io;
use std::process::ExitCode;

use ensemble_client::{Error, NoConnection};
use ensemble_types::problem::Code;

use crate::print::{self, clean, inline};
use crate::says;

pub(crate) type Result<T = ExitCode, E = Failure> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call to the service failed.
    Client(Box<Error>),
    /// A person has to agree first, and cannot be asked.
    NotAgreed(String),
    /// What was typed cannot be meant.
    Usage(String),
    /// Any other failure, as a sentence.
    Message(String),
    /// The reader of our output has closed it. Nothing is printed.
    OutputClosed,
}

impl Failure {
    pub(crate) fn message(sentence: impl Into<String>) -> Self {
        Self::Message(sentence.into())
    }

    /// Prints the failure to standard error and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if matches!(self, Self::OutputClosed) {
            return ExitCode::SUCCESS;
        }
        let text = if json { self.as_json().to_string() } else { format!("error: {self}") };
        print::note(text);
        if matches!(self, Self::NotAgreed(_) | Self::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
    }

    fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Client(error) => match error.as_ref() {
                Error::Problem(problem) => serde_json::json!({ "error": problem }),
                _ => detail(&self.to_string()),
            },
            _ => detail(&self.to_string()),
        }
    }
}

/// An error for programs that is not a problem of the server.
pub(crate) fn detail(text: &str) -> serde_json::Value {
    serde_json::json!({ "error": { "detail": text } })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Much of it is what the server has said.
            Self::Client(error) => f.write_str(&clean(&client_text(error))),
            Self::Message(sentence) | Self::NotAgreed(sentence) | Self::Usage(sentence) => f.write_str(sentence),
            Self::OutputClosed => Ok(()),
        }
    }
}

pub(crate) fn client_text(error: &Error) -> String {
    let Error::Problem(problem) = error else { return transport_text(error) };
    let mut text = match problem.code {
        Code::Unauthenticated => "The server did not accept your sign-in. Run `ensemble login`.".to_owned(),
        Code::RegistrationClosed => {
            "This server does not accept new accounts without an invitation, if at all. Ask its operator, or someone who can invite you: \
             `ensemble join`. `ensemble login --key FILE` imports the key of an account that you have there."
                .to_owned()
        }
        Code::MachineNotFound => "You have no machine with this id. `ensemble machine list` shows your machines.".to_owned(),
        Code::DeviceRemoved => {
            "This device was removed from its account. To add it again: move its key away, and link it with `ensemble login --link`."
                .to_owned()
        }
        Code::UserNotFound => "There is no user with this id. `ensemble whoami` shows users their own id.".to_owned(),
        Code::LinkNotFound => {
            "This link does not work: it is unknown, expired, used up or deleted. Ask for a new one.".to_owned()
        }
        Code::NotFound => {
            "Nothing with this id or ref is yours or shared with you. Check it: `ensemble runs` and `ensemble session list` show \
             what there is."
                .to_owned()
        }
        Code::VersionMismatch => "It was changed in the meantime. Look at the current version, then try again.".to_owned(),
        Code::RateLimited => match problem.retry_after {
            Some(seconds) => format!("Too many requests. Try again in {seconds} s."),
            None => "Too many requests. Try again later.".to_owned(),
        },
        Code::Unavailable | Code::UpstreamError | Code::UpstreamTimeout => {
            format!("The server is temporarily unavailable: {} Try again later.", sentence(&inline(&problem.detail)))
        }
        _ => sentence(&inline(&problem.detail)),
    };
    for field in &problem.errors {
        text.push_str(&format!("\n  {}: {}", inline(&field.pointer), inline(&field.detail)));
    }
    if problem.code.status() >= 500 && !problem.request_id.is_empty() {
        text.push_str(&format!("\n  (request {})", inline(&problem.request_id)));
    }
    text
}

fn transport_text(error: &Error) -> String {
    match error {
        Error::Unreachable { origin, why, .. } => no_connection(origin, why),
        Error::WrongOrigin { origin, accepted } => format!(
            "The server at {origin} knows itself by another address, and accepts sign-ins only there: {}. Use that address \
             with --server, or let its operator add this one: `ensemble up --public-url {origin}`, or PUBLIC_BASE_URL={origin} \
             in its settings (PUBLIC_ORIGINS for several).",
            inline(&accepted.join(", "))
        ),
        Error::ConnectionLost { origin, .. } => format!("The connection to {origin} broke. Try again."),
        Error::TimedOut { origin, waited } => {
            format!("{origin} did not respond within {} s. Try again, or check the server.", waited.as_secs())
        }
        Error::ForeignServer { origin, status } => {
            format!(
                "The server at {origin} (status {status}) is not an Ensemble server. Check the address given with --server."
            )
        }
        Error::Address(address) => {
            format!(
                "{address:?} is not a valid address. Use one that begins with http:// or https://, for example http://127.0.0.1:8080."
            )
        }
        Error::InvalidResponse { call, source } => {
            format!(
                "The response to {call} is not what this version of `ensemble` expects ({source}). Update `ensemble` and the server to the same version."
            )
        }
        Error::StreamEnded { reason } => format!("The server ended the stream: {}.", inline(reason)),
        Error::Setup(source) => {
            format!("TLS could not be set up ({source}). Check that the system's certificates are installed.")
        }
        other => sentence(&other.to_string()),
    }
}

fn no_connection(origin: &str, why: &NoConnection) -> String {
    match why {
        NoConnection::Refused if is_loopback(origin) => {
            format!(
                "Nothing answers at {origin}. Start a server there with `{}`, or name another with --server.",
                start(origin)
            )
        }
        NoConnection::Refused => format!(
            "Nothing listens at {origin}: the connection was refused. Check the address and the port, and that the server runs."
        ),
        NoConnection::UnknownHost => format!(
            "The host of {origin} was not found: its name has no address. Check the spelling of the name and your network."
        ),
        NoConnection::TimedOut => format!(
            "{origin} did not answer: connecting timed out. Check the address, your network, and the firewalls between."
        ),
        NoConnection::NotTls => {
            format!(
                "{origin} does not speak TLS. If the server is meant to be without it, write http:// and not https://."
            )
        }
        NoConnection::Certificate(why) => format!(
            "The certificate of {origin} is not accepted: {}. Check the name in the address; a private certificate has to be \
             installed on this machine.",
            why.trim_end_matches('.')
        ),
        NoConnection::Other(why) => {
            format!("No connection to {origin}: {}. Check the address and your network.", why.trim_end_matches('.'))
        }
    }
}

/// The command that starts a server at this address of this machine.
pub(crate) fn start(origin: &str) -> String {
    let address = origin.split_once("://").map_or(origin, |(_, address)| address);
    match address.parse::<std::net::SocketAddr>() {
        Ok(address) if origin != crate::context::DEFAULT_SERVER => format!("ensemble up --listen {address}"),
        _ => "ensemble up".to_owned(),
    }
}

/// What a person without an account has to do before the first command.
pub(crate) fn begin(origin: &str) -> String {
    format!(
        "You are not signed in at {origin}. Run `{}` in another terminal: it starts a server there and signs you in. For one that \
         runs already: `ensemble login`, with --server URL if it is elsewhere.",
        start(origin)
    )
}

pub(crate) fn is_loopback(origin: &str) -> bool {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || literal.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Adds a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let mut out: String = characters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    out.push_str(characters.as_str());
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

impl From<ensemble_account::Error> for Failure {
    fn from(error: ensemble_account::Error) -> Self {
        match error {
            ensemble_account::Error::Client(error) => Self::Client(error),
            error => Self::Message(says::error(&error)),
        }
    }
}

impl From<ensemble_computer::Error> for Failure {
    fn from(error: ensemble_computer::Error) -> Self {
        match error {
            ensemble_computer::Error::Account(error) => error.into(),
            ensemble_computer::Error::Io(error) => error.into(),
            ensemble_computer::Error::Usage(sentence) => Self::Usage(sentence),
            ensemble_computer::Error::Sentence(sentence) => Self::Message(sentence),
        }
    }
}

impl From<ensemble_talk::Error> for Failure {
    fn from(error: ensemble_talk::Error) -> Self {
        match error {
            ensemble_talk::Error::Account(error) => error.into(),
            ensemble_talk::Error::Output(error) => error.into(),
            ensemble_talk::Error::Room { what, why } => Self::Message(says::of_room(&what, &why)),
            ensemble_talk::Error::Sentence(sentence) => Self::Message(sentence),
        }
    }
}

impl From<ensemble_plan::Error> for Failure {
    fn from(error: ensemble_plan::Error) -> Self {
        Self::Message(says::of_plan(&error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Message(sentence(&error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_to_start_a_server_names_its_address() {
        for (origin, command) in [
            ("http://127.0.0.1:8080", "ensemble up"),
            ("http://127.0.0.1:18700", "ensemble up --listen 127.0.0.1:18700"),
            ("http://localhost:8080", "ensemble up"),
        ] {
            assert_eq!(start(origin), command);
        }
    }

    #[test]
    fn a_server_on_this_machine_can_be_started_here() {
        for origin in
            ["http://127.0.0.1:8080", "http://localhost", "https://[::1]:8080", "http://[::1]", "http://127.9.9.9"]
        {
            assert!(is_loopback(origin), "{origin}");
        }
        for origin in
            ["http://192.0.2.2:8080", "https://example.com", "http://[2001:db8::1]", "http://localhost.example"]
        {
            assert!(!is_loopback(origin), "{origin}");
        }
    }

    #[test]
    fn what_a_server_says_does_not_steer_the_terminal() {
        let steers = "a\u{1b}]52;c;eA==\u{7}b\nerror: c\u{202e}d\u{9b}31m";
        let problem = |code: &str| {
            serde_json::from_value::<ensemble_types::problem::Problem>(serde_json::json!({
                "type": steers, "title": steers, "status": 500, "detail": steers, "code": code, "requestId": steers,
                "errors": [{ "pointer": steers, "detail": steers }],
            }))
        };
        let errors = ["INTERNAL", "UNAVAILABLE"].map(|code| Error::Problem(Box::new(problem(code).unwrap())));
        let origin = "http://127.0.0.1:8080".to_owned();
        let others = [
            Error::StreamEnded { reason: steers.to_owned() },
            Error::WrongOrigin { origin, accepted: vec![steers.to_owned()] },
        ];
        for error in errors.into_iter().chain(others) {
            let said = Failure::from(error).to_string();
            assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']) && said.contains('a'), "{said:?}");
            assert!(!said.contains("\nerror"), "it begins no separate line: {said:?}");
        }
    }
}
