//! What each program says about its sign-in, and what its files say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_agent::known;
use ensemble_types::runs::Provider;
use serde_json::Value;

use super::SignIn;

/// How to find out whether the program is signed in.
pub(super) enum Check {
    /// Run the program with these arguments and read the answer: its exit code, and what it printed.
    Ask(&'static [&'static str], fn(Option<i32>, &str) -> SignIn),
    /// The environment, or files in the home directory, say it.
    Known(SignIn),
}

/// How each program is asked, with the environment and the arguments that it has in tasks.
pub(super) fn check(provider: Provider, environment: &BTreeMap<String, String>, args: &[String]) -> Check {
    let asks = known::named(provider.as_str())
        .and_then(|known| known.sign_in.as_ref())
        .map(|sign_in| sign_in.asks)
        .unwrap_or_default();
    match provider {
        Provider::Claude => Check::Ask(asks, of_claude),
        Provider::Codex if has_other_model(environment, args) => Check::Known(SignIn::Unknown),
        // Tasks sign in with this variable, and not with OPENAI_API_KEY.
        Provider::Codex if environment.get("CODEX_API_KEY").is_some_and(|key| !key.is_empty()) => {
            Check::Known(SignIn::Yes)
        }
        Provider::Codex => Check::Ask(asks, of_codex),
        Provider::Gemini => of_gemini(environment, asks),
        Provider::Other(_) => Check::Known(SignIn::Unknown),
    }
}

/// Claude Code: `claude auth status` prints JSON.
fn of_claude(_: Option<i32>, printed: &str) -> SignIn {
    let answer = printed.find('{').and_then(|start| printed.get(start..));
    let answer: Option<Value> =
        answer.and_then(|json| serde_json::Deserializer::from_str(json).into_iter().next()?.ok());
    match answer.and_then(|answer| answer.get("loggedIn").and_then(Value::as_bool)) {
        Some(true) => SignIn::Yes,
        Some(false) => SignIn::No("run `claude` and type /login there, or set ANTHROPIC_API_KEY"),
        None => SignIn::Unknown,
    }
}

/// Codex: `codex login status` has exit code 0 when it is signed in.
fn of_codex(code: Option<i32>, printed: &str) -> SignIn {
    if printed.contains("Not logged in") {
        SignIn::No("run `codex login`, or set CODEX_API_KEY")
    } else if code == Some(0) && printed.contains("Logged in") {
        SignIn::Yes
    } else {
        SignIn::Unknown
    }
}

/// The text of Codex's configuration.
pub(super) fn codex_configuration(environment: &BTreeMap<String, String>) -> Option<String> {
    let folder = environment.get("CODEX_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| environment.get("HOME").map(|home| Path::new(home).join(".codex")));
    folder.and_then(|folder| std::fs::read_to_string(folder.join("config.toml")).ok())
}

/// Whether Codex has another model provider than its maker's. Such a provider has its own sign-in.
pub fn has_other_model(environment: &BTreeMap<String, String>, args: &[String]) -> bool {
    let names_provider = |text: &str| text.lines().any(|line| line.trim_start().starts_with("model_provider"));
    args.iter().any(|arg| names_provider(arg))
        || codex_configuration(environment).is_some_and(|text| names_provider(&text))
}

/// Gemini CLI: every command but `--version` needs what its settings select, or else a key in the environment, and has exit
/// code 41 without it. A sign-in with Google is a file, because asking for it can open a browser.
fn of_gemini(environment: &BTreeMap<String, String>, asks: &'static [&'static str]) -> Check {
    let home = environment.get("HOME").map(|home| Path::new(home).join(".gemini"));
    let settings = home.as_ref().and_then(|home| std::fs::read_to_string(home.join("settings.json")).ok());
    let settings: Value = settings.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let asks_google = environment.get("GOOGLE_GENAI_USE_GCA").is_some_and(|value| !value.is_empty());
    // `selectedAuthType` is of versions before 0.4.
    let selected = settings.pointer("/security/auth/selectedType").or_else(|| settings.get("selectedAuthType"));
    match selected.and_then(Value::as_str) {
        Some("oauth-personal") if home.is_some_and(|home| home.join("oauth_creds.json").exists()) => {
            Check::Known(SignIn::Yes)
        }
        Some("oauth-personal") => Check::Known(SignIn::No(GEMINI_SIGN_IN)),
        Some("gemini-api-key") => Check::Ask(asks, |code, _| read_gemini(code, GEMINI_KEY)),
        Some("vertex-ai") => Check::Ask(asks, |code, _| read_gemini(code, GEMINI_VERTEX)),
        None if !asks_google => Check::Ask(asks, |code, _| read_gemini(code, GEMINI_SIGN_IN)),
        _ => Check::Known(SignIn::Unknown),
    }
}

pub(super) const GEMINI_SIGN_IN: &str =
    "run `gemini` and sign in there, or set GEMINI_API_KEY, which may stand in ~/.gemini/.env";
pub(super) const GEMINI_KEY: &str =
    "its settings choose an API key: set GEMINI_API_KEY, which may stand in ~/.gemini/.env";
const GEMINI_VERTEX: &str =
    "its settings choose Vertex AI: set GOOGLE_API_KEY, or GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION";

/// `lacks`: what to do when it is not signed in.
fn read_gemini(code: Option<i32>, lacks: &'static str) -> SignIn {
    match code {
        Some(0) => SignIn::Yes,
        Some(41) => SignIn::No(lacks),
        _ => SignIn::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_the_programs_are_understood() {
        assert_eq!(of_claude(Some(0), "{\n \"loggedIn\": true,\n \"authMethod\": \"api_key\"\n}\n"), SignIn::Yes);
        assert!(matches!(of_claude(Some(1), "{\"loggedIn\": false}"), SignIn::No(_)));
        assert_eq!(of_claude(Some(1), "error: unknown command 'auth'"), SignIn::Unknown);
        assert!(matches!(of_codex(Some(1), "WARNING: x\nNot logged in\n"), SignIn::No(_)));
        assert_eq!(of_codex(Some(0), "Logged in using ChatGPT\n"), SignIn::Yes);
        assert_eq!(of_codex(Some(2), "error"), SignIn::Unknown);
    }

    #[test]
    fn a_sign_in_with_google_is_a_file() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".gemini");
        std::fs::create_dir(&folder).unwrap();
        let environment = BTreeMap::from([("HOME".to_owned(), home.path().display().to_string())]);
        let select = |kind: &str| {
            let settings = format!(r#"{{"security":{{"auth":{{"selectedType":"{kind}"}}}}}}"#);
            std::fs::write(folder.join("settings.json"), settings).unwrap();
        };
        assert!(matches!(of_gemini(&environment, &[]), Check::Ask(..)));
        select("oauth-personal");
        assert!(matches!(of_gemini(&environment, &[]), Check::Known(SignIn::No(_))));
        std::fs::write(folder.join("oauth_creds.json"), "{}").unwrap();
        assert!(matches!(of_gemini(&environment, &[]), Check::Known(SignIn::Yes)));
        select("gemini-api-key");
        assert!(matches!(of_gemini(&environment, &[]), Check::Ask(..)));
        select("cloud-shell");
        assert!(matches!(of_gemini(&environment, &[]), Check::Known(SignIn::Unknown)));
    }

    #[test]
    fn codex_with_another_model_is_not_asked_about_its_makers() {
        let home = tempfile::tempdir().unwrap();
        let environment = BTreeMap::from([("CODEX_HOME".to_owned(), home.path().display().to_string())]);
        assert!(!has_other_model(&environment, &[]));
        assert!(has_other_model(&environment, &["-c".to_owned(), "model_provider=x".to_owned()]));
        std::fs::write(home.path().join("config.toml"), "model = \"m\"\nmodel_provider = \"x\"\n").unwrap();
        assert!(has_other_model(&environment, &[]));
    }
}
