//! Our four modes in the agent's own: by `session/set_mode` or by a configuration option of the category `mode`.

use ensemble_protocol::transcript::body::Choice;
use ensemble_protocol::transcript::words::Mode;
use serde_json::{Value, json};

use crate::core::choices;
use crate::drivers::Kind;
use crate::json::{list, some, text};

/// The agent's modes.
#[derive(Debug)]
pub(super) struct Modes {
    kind: Kind,
    /// The mode at the start; some agents have theirs from there for good.
    begun: Mode,
    /// The one that was confirmed.
    pub(super) now: Option<Mode>,
    /// The ids that the agent offers.
    ids: Vec<String>,
    /// The configuration option that holds the mode, when it is not set by `session/set_mode`.
    option: Option<String>,
    /// The options by their category.
    options: Vec<(String, String)>,
}

/// What to send for a mode.
pub(super) enum Order {
    Set {
        method: &'static str,
        params: Value,
    },
    /// The agent has had it since its start.
    Already,
    Missing,
}

impl Modes {
    pub(super) fn new(kind: Kind, begun: Mode) -> Self {
        Self { kind, begun, now: None, ids: Vec::new(), option: None, options: Vec::new() }
    }

    /// Reads what `session/new` or `session/load` offers.
    pub(super) fn read(&mut self, result: &Value) {
        let ids = |found: &mut dyn Iterator<Item = (String, String)>| found.map(|(id, _)| id).collect::<Vec<_>>();
        let named = list(result, "/modes/availableModes");
        self.ids = ids(&mut named.map(|mode| (text(mode, "/id").to_owned(), String::new())));
        self.options = list(result, "/configOptions")
            .map(|option| (text(option, "/category").to_owned(), text(option, "/id").to_owned()))
            .collect();
        if self.ids.is_empty() {
            self.ids = ids(&mut options(result, "mode"));
            self.option = self.options.iter().find(|(category, _)| category == "mode").map(|(_, id)| id.clone());
        }
    }

    pub(super) fn has_option(&self, category: &str) -> bool {
        self.options.iter().any(|(known, _)| known == category)
    }

    pub(super) fn option_id(&self, category: &str) -> &str {
        self.options.iter().find(|(known, _)| known == category).map_or("", |(_, id)| id)
    }

    /// The modes of ours that can be chosen.
    pub(super) fn offered(&self) -> Vec<Choice> {
        let all = [Mode::Ask, Mode::Edit, Mode::Plan, Mode::Bypass];
        let can = all.into_iter().filter(|mode| !matches!(self.order(mode), Order::Missing));
        choices(can.map(|mode| (mode.as_str().to_owned(), String::new())))
    }

    /// Our word for an id of the agent's.
    pub(super) fn of_id(&self, id: &str) -> Option<Mode> {
        let all = [Mode::Plan, Mode::Edit, Mode::Bypass, Mode::Ask];
        // opencode's `build` is the mode of the start: what it may do is in its environment.
        if self.kind == Kind::Opencode && id == "build" {
            return Some(self.begun.clone());
        }
        all.into_iter().find(|mode| names(mode).contains(&id))
    }

    pub(super) fn order(&self, mode: &Mode) -> Order {
        let id = match (self.kind, mode) {
            (Kind::Opencode, Mode::Plan) => Some("plan"),
            (Kind::Opencode, mode) => Some("build").filter(|_| *mode == self.begun),
            (_, mode) => names(mode).iter().copied().find(|name| self.ids.iter().any(|id| id == name)),
        };
        let id = id.filter(|id| self.ids.iter().any(|known| known == id));
        match (id, &self.option) {
            (Some(id), Some(option)) => {
                Order::Set { method: "session/set_config_option", params: json!({"configId": option, "value": id}) }
            }
            (Some(id), None) => Order::Set { method: "session/set_mode", params: json!({"modeId": id}) },
            // An agent without modes asks as its own configuration says.
            (None, _) if self.ids.is_empty() && *mode == Mode::Ask => Order::Already,
            (None, _) => Order::Missing,
        }
    }
}

/// What agents call our modes, the best first. Names in which a classifier decides ("auto", "agent", "autopilot") are not here.
fn names(mode: &Mode) -> &'static [&'static str] {
    match mode {
        Mode::Ask => &["default", "ask", "read-only", "https://agentclientprotocol.com/protocol/session-modes#agent"],
        Mode::Edit => &["autoEdit", "auto-edit", "auto_edit", "acceptEdits"],
        Mode::Plan => &["plan", "https://agentclientprotocol.com/protocol/session-modes#plan"],
        Mode::Bypass => &["yolo", "bypassPermissions", "full-access", "agent-full-access"],
        Mode::Other(_) => &[],
    }
}

/// The values of the configuration options of a category.
pub(super) fn options<'a>(result: &'a Value, category: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    let values = list(result, "/configOptions").filter(move |option| text(option, "/category") == category);
    // Values are a list, or groups of lists.
    let flat = values.flat_map(|option| list(option, "/options")).flat_map(|value| {
        let inner: Vec<&Value> = list(value, "/options").collect();
        if inner.is_empty() { vec![value] } else { inner }
    });
    flat.map(|value| (text(value, "/value").to_owned(), text(value, "/name").to_owned()))
}

/// The value that is chosen of a category.
pub(super) fn current<'a>(result: &'a Value, category: &str) -> Option<&'a str> {
    let option = list(result, "/configOptions").find(|option| text(option, "/category") == category)?;
    some(option, "/currentValue")
}

/// opencode has no modes that ask; what it may do is set at its start.
pub(super) fn opencode_permission(mode: &Mode) -> &'static str {
    match mode {
        Mode::Bypass => r#"{"*":"allow"}"#,
        Mode::Edit => {
            r#"{"*":"ask","read":"allow","glob":"allow","grep":"allow","list":"allow","todowrite":"allow","edit":"allow"}"#
        }
        _ => r#"{"*":"ask","read":"allow","glob":"allow","grep":"allow","list":"allow","todowrite":"allow"}"#,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(kind: Kind, ids: &[&str]) -> Modes {
        let mut modes = Modes::new(kind, Mode::Ask);
        let offered: Vec<Value> = ids.iter().map(|id| json!({"id": id, "name": id})).collect();
        modes.read(&json!({"modes": {"availableModes": offered, "currentModeId": "x"}}));
        modes
    }

    fn set(modes: &Modes, mode: Mode) -> Option<String> {
        match modes.order(&mode) {
            Order::Set { params, .. } => some(&params, "/modeId").or(some(&params, "/value")).map(str::to_owned),
            Order::Already => Some("as it is".to_owned()),
            Order::Missing => None,
        }
    }

    #[test]
    fn a_mode_in_which_the_agent_decides_is_never_chosen() {
        let qwen = modes(Kind::Acp, &["plan", "default", "auto-edit", "auto", "yolo"]);
        let words = [Mode::Ask, Mode::Edit, Mode::Plan, Mode::Bypass].map(|mode| set(&qwen, mode).unwrap());
        assert_eq!(words, ["default", "auto-edit", "plan", "yolo"]);
        let codex = modes(Kind::Acp, &["read-only", "agent", "agent-full-access"]);
        assert_eq!(set(&codex, Mode::Ask).unwrap(), "read-only");
        assert_eq!((set(&codex, Mode::Edit), set(&codex, Mode::of("auto"))), (None, None));
        let only_auto = modes(Kind::Acp, &["auto"]);
        assert_eq!(set(&only_auto, Mode::Ask), None, "better no session");
        assert_eq!(set(&modes(Kind::Acp, &[]), Mode::Ask).unwrap(), "as it is");
    }

    #[test]
    fn a_mode_can_be_a_configuration_option() {
        let mut modes = Modes::new(Kind::Opencode, Mode::Ask);
        let values = json!([{"value": "build", "name": "build"}, {"value": "plan", "name": "plan"}]);
        modes.read(&json!({"configOptions": [{"id": "mode", "category": "mode", "options": values}]}));
        assert_eq!(set(&modes, Mode::Ask).unwrap(), "build");
        assert_eq!(set(&modes, Mode::Plan).unwrap(), "plan");
        assert_eq!(set(&modes, Mode::Bypass), None, "what it may do is said at its start");
        assert_eq!(modes.of_id("build"), Some(Mode::Ask));
    }
}
