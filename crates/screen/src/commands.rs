//! What begins with a slash: the screen's own commands, and those of the agent.

use ensemble_protocol::transcript::body::State;
use ensemble_protocol::transcript::words::Mode;

use crate::about::Level;
use crate::clean::line;

/// The screen's own commands, what they do, and who may use them.
const OWN: &[(&str, &str, Level)] = &[
    ("mode", "ask, edit, plan or bypass", Level::Owner),
    ("model", "choose the model", Level::Approve),
    ("stop", "end the agent", Level::Owner),
    ("resume", "start the agent again", Level::Owner),
    ("insert", "write the last messages into this field, for an agent that has lost them", Level::Prompt),
    ("leave", "close this screen; the session continues", Level::Read),
    ("help", "all keys", Level::Read),
];
/// The commands that are offered at once.
pub(crate) const MOST_OFFERS: usize = 50;

/// A command of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Mode(Mode),
    Model(String),
    Stop,
    Resume,
    Insert,
    Leave,
    Help,
}

/// What a text is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Prompt,
    Command(Command),
    /// A command that cannot be carried out, and why.
    Wrong(String),
}

/// A text that the person may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// What the text becomes.
    pub(crate) text: String,
    pub(crate) about: String,
}

/// Reads a text that is to be sent.
pub(crate) fn parse(text: &str, state: Option<&State>) -> Parsed {
    let Some(rest) = text.strip_prefix('/') else { return Parsed::Prompt };
    let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let value = value.trim();
    let command = match (name, value) {
        ("mode", "") => return Parsed::Wrong("Say which mode: /mode ask, edit, plan or bypass.".to_owned()),
        ("mode", value) => match Mode::of(value) {
            Mode::Other(_) => return Parsed::Wrong(format!("There is no mode {}.", line(value, 32))),
            mode => Command::Mode(mode),
        },
        ("model", "") => return Parsed::Wrong("Say which model: /model and its name. Tab shows them.".to_owned()),
        ("model", value) => {
            let models = state.map(|state| state.models.as_slice()).unwrap_or_default();
            let found = models.iter().find(|model| model.id == value || model.name == value);
            match found {
                Some(model) => Command::Model(model.id.clone()),
                None if models.is_empty() => Command::Model(value.to_owned()),
                None => return Parsed::Wrong(format!("There is no model {}. Tab shows them.", line(value, 60))),
            }
        }
        ("stop", "") => Command::Stop,
        ("resume", "") => Command::Resume,
        ("insert", "") => Command::Insert,
        ("leave" | "exit" | "quit", "") => Command::Leave,
        ("help", "") => Command::Help,
        (name, _) => {
            let agents = state.map(|state| state.commands.as_slice()).unwrap_or_default();
            let is_word = !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || "-_:".contains(one));
            if !is_word || agents.is_empty() || agents.iter().any(|command| bare(&command.name) == name) {
                return Parsed::Prompt;
            }
            let name = line(name, 32);
            return Parsed::Wrong(format!("There is no command /{name}. With a space before it, it is a prompt."));
        }
    };
    Parsed::Command(command)
}

/// What the text can become. Nothing, once it is complete.
pub(crate) fn offers(text: &str, state: Option<&State>, level: Level) -> Vec<Offer> {
    let Some(rest) = text.strip_prefix('/').filter(|rest| !rest.contains('\n')) else { return Vec::new() };
    let offers: Vec<Offer> = match rest.split_once(' ') {
        None => names(rest, state, level),
        Some(("mode", value)) if level >= Level::Owner => {
            let known = state.map(|state| state.modes.as_slice()).unwrap_or_default();
            let known: Vec<&str> = known.iter().map(|mode| mode.id.as_str()).collect();
            let modes = if known.is_empty() { Mode::KNOWN.to_vec() } else { known };
            let fitting = modes.into_iter().filter(|mode| mode.starts_with(value));
            fitting.map(|mode| offer("mode", mode, about_mode(mode))).collect()
        }
        Some(("model", value)) if level >= Level::Approve => {
            let models = state.map(|state| state.models.as_slice()).unwrap_or_default();
            let fitting = models.iter().filter(|model| model.id.contains(value) || model.name.contains(value));
            fitting.map(|model| offer("model", &model.id, &model.name)).collect()
        }
        Some(_) => Vec::new(),
    };
    let is_complete = matches!(offers.as_slice(), [only] if only.text == text);
    if is_complete { Vec::new() } else { offers.into_iter().take(MOST_OFFERS).collect() }
}

fn names(begin: &str, state: Option<&State>, level: Level) -> Vec<Offer> {
    let own =
        OWN.iter().filter(|(name, _, needs)| name.starts_with(begin) && level >= *needs).map(|(name, about, _)| {
            let takes_value = matches!(*name, "mode" | "model");
            Offer { text: format!("/{name}{}", if takes_value { " " } else { "" }), about: (*about).to_owned() }
        });
    let agents = state.map(|state| state.commands.as_slice()).unwrap_or_default().iter().filter(|command| {
        let name = bare(&command.name);
        level >= Level::Prompt && name.starts_with(begin) && !OWN.iter().any(|(own, ..)| *own == name)
    });
    let agents = agents.map(|command| Offer {
        text: format!("/{}{}", line(bare(&command.name), 60), if command.hint.is_some() { " " } else { "" }),
        about: line(&command.description, 200),
    });
    own.chain(agents).collect()
}

fn offer(command: &str, value: &str, about: &str) -> Offer {
    Offer { text: format!("/{command} {}", line(value, 60)), about: line(about, 200) }
}

fn about_mode(mode: &str) -> &'static str {
    match mode {
        "ask" => "it asks before each change and each command",
        "edit" => "it changes files of its directory without asking",
        "plan" => "it changes nothing",
        "bypass" => "it asks nothing",
        _ => "",
    }
}

/// Some agents name their commands with the slash.
fn bare(name: &str) -> &str {
    name.trim_start_matches('/')
}
