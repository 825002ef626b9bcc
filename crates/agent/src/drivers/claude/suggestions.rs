//! What claude suggests to allow from now on. Each suggestion is a separate option, because their scopes differ.

use serde_json::Value;

use super::{mode_of, mode_word};
use crate::json::{list, text};
use ensemble_protocol::transcript::words::Mode;

/// The offers of a request that can be shown, each with what it does and where it is kept.
pub(super) fn suggestions(request: &Value) -> impl Iterator<Item = (String, &Value)> {
    list(request, "/permission_suggestions").filter_map(|suggestion| Some((name(suggestion)?, suggestion)))
}

/// `None`: this version does not know what the offer does, or it would hand decisions to the program.
fn name(suggestion: &Value) -> Option<String> {
    let place = place(text(suggestion, "/destination"))?;
    let what = match text(suggestion, "/type") {
        "addRules" if text(suggestion, "/behavior") == "allow" => {
            let rules: Vec<String> = list(suggestion, "/rules").map(rule).collect::<Option<_>>()?;
            if rules.is_empty() {
                return None;
            }
            format!("Always allow {}", rules.join(", "))
        }
        "addDirectories" => {
            let paths: Vec<&str> = list(suggestion, "/directories").map(Value::as_str).collect::<Option<_>>()?;
            if paths.is_empty() {
                return None;
            }
            format!("Always allow work in {}", paths.join(", "))
        }
        "setMode" => match mode_of(text(suggestion, "/mode")) {
            mode @ (Mode::Ask | Mode::Edit | Mode::Plan) => {
                format!("Allow, and change the mode to {} ({})", mode.as_str(), mode_word(&mode))
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(format!("{what}: {place}"))
}

fn rule(rule: &Value) -> Option<String> {
    let tool = rule.get("toolName")?.as_str()?;
    Some(match rule.get("ruleContent").and_then(Value::as_str) {
        Some(content) => format!("{tool}({content})"),
        None => format!("every {tool}"),
    })
}

fn place(destination: &str) -> Option<&'static str> {
    match destination {
        "session" => Some("for this session"),
        "localSettings" => Some("kept for this project, in .claude/settings.local.json"),
        "projectSettings" => Some("kept for all who work on this project, in .claude/settings.json"),
        "userSettings" => Some("kept for all projects, in ~/.claude/settings.json"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_offer_says_what_it_allows_and_where() {
        let rules = json!([{"toolName": "Bash", "ruleContent": "npm test *"}, {"toolName": "WebSearch"}]);
        let offer = |mut offer: Value, place: &str| {
            offer["destination"] = json!(place);
            name(&offer)
        };
        let add = json!({"type": "addRules", "behavior": "allow", "rules": rules});
        assert_eq!(
            offer(add.clone(), "localSettings").unwrap(),
            "Always allow Bash(npm test *), every WebSearch: kept for this project, in .claude/settings.local.json"
        );
        assert_eq!(offer(add.clone(), "elsewhere"), None);
        let directories = json!({"type": "addDirectories", "directories": ["/w"]});
        assert_eq!(offer(directories, "session").unwrap(), "Always allow work in /w: for this session");
        let edit = json!({"type": "setMode", "mode": "acceptEdits"});
        assert_eq!(
            offer(edit, "session").unwrap(),
            "Allow, and change the mode to edit (acceptEdits): for this session"
        );
        for mode in ["auto", "bypassPermissions", "dontAsk", ""] {
            assert_eq!(offer(json!({"type": "setMode", "mode": mode}), "session"), None, "{mode}");
        }
        for unknown in [json!({"type": "removeRules"}), json!({"type": "addRules", "behavior": "deny", "rules": rules})]
        {
            assert_eq!(offer(unknown, "session"), None);
        }
    }
}
