//! The ways to sign in that the variables of a person choose, and what each of them needs, from the pages of the programs' makers.

use std::collections::BTreeMap;

use ensemble_types::runs::Provider;
use toml::{Table, Value};

use super::answers::codex_configuration;

/// A variable that chooses a way, and what it needs as well: one of each list.
type Way = (&'static str, &'static [&'static [&'static str]]);

/// code.claude.com/docs: "Authentication", "Amazon Bedrock", "Google Vertex AI", "Microsoft Foundry".
const CLAUDE: &[Way] = &[
    ("CLAUDE_CODE_USE_BEDROCK", &[&["AWS_REGION", "AWS_DEFAULT_REGION"]]),
    ("CLAUDE_CODE_USE_VERTEX", &[&["CLOUD_ML_REGION"], &["ANTHROPIC_VERTEX_PROJECT_ID"]]),
    ("CLAUDE_CODE_USE_FOUNDRY", &[&["ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_BASE_URL"]]),
    ("ANTHROPIC_API_KEY", &[]),
    ("ANTHROPIC_AUTH_TOKEN", &[]),
    ("CLAUDE_CODE_OAUTH_TOKEN", &[]),
];
/// developers.openai.com/codex, "Authentication".
const CODEX: &[Way] = &[("CODEX_API_KEY", &[]), ("OPENAI_API_KEY", &[])];
/// geminicli.com/docs, "Authentication".
const GEMINI: &[Way] = &[
    (
        "GOOGLE_GENAI_USE_VERTEXAI",
        &[&["GOOGLE_CLOUD_PROJECT", "GOOGLE_API_KEY"], &["GOOGLE_CLOUD_LOCATION", "GOOGLE_API_KEY"]],
    ),
    ("GEMINI_API_KEY", &[]),
    ("GOOGLE_API_KEY", &[]),
];

/// A variable that a way to sign in needs, and that the program does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub variable: String,
    /// The variable that has chosen the way, or the setting in the program's own configuration.
    pub chosen_by: String,
    /// The runner has it, and the list of variables that the program may inherit leaves it out.
    pub is_kept_back: bool,
}

/// What the program lacks, which has these arguments. `own` are the runner's variables, `given` those of the program.
pub fn missing(
    provider: Provider,
    args: &[String],
    own: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> Vec<Missing> {
    let ways = match provider {
        Provider::Claude => CLAUDE,
        Provider::Codex => CODEX,
        Provider::Gemini => GEMINI,
        Provider::Other(_) => &[],
    };
    let is_set = |variables: &BTreeMap<String, String>, name: &str| {
        variables.get(name).is_some_and(|value| !["", "0", "false"].contains(&value.as_str()))
    };
    let chosen = ways.iter().filter(|(switch, _)| is_set(own, switch) || is_set(given, switch));
    let lacking = chosen.flat_map(|(switch, needs)| {
        let switch_itself: &[&'static str] = std::slice::from_ref(switch);
        let needs = std::iter::once(switch_itself).chain(needs.iter().copied());
        let lacking = needs.filter(|any| !any.iter().any(|name| is_set(given, name)));
        lacking.filter_map(|any| {
            let kept_back = any.iter().find(|name| is_set(own, name));
            let variable = kept_back.or(any.first()).copied()?;
            let (variable, chosen_by) = (variable.to_owned(), (*switch).to_owned());
            Some(Missing { variable, chosen_by, is_kept_back: kept_back.is_some() })
        })
    });
    let configured =
        Some(provider).filter(|provider| *provider == Provider::Codex).and_then(|_| codex_key(given, args));
    let configured = configured.filter(|(_, variable)| !is_set(given, variable)).map(|(chosen_by, variable)| {
        let is_kept_back = is_set(own, &variable);
        Missing { variable, chosen_by, is_kept_back }
    });
    let mut all: Vec<Missing> = lacking.collect();
    all.extend(configured.filter(|one| !all.iter().any(|other| other.variable == one.variable)));
    all
}

/// The variable with the key of the model provider that Codex's configuration or arguments choose, and the setting that names it
/// (developers.openai.com/codex, "Configuration": `model_provider`, `model_providers.<id>.env_key`, `-c key=value`).
fn codex_key(given: &BTreeMap<String, String>, args: &[String]) -> Option<(String, String)> {
    let mut settings = codex_configuration(given).and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    for arg in args.iter().filter(|arg| arg.starts_with("model_provider")) {
        // Codex takes a value that is no TOML as a text.
        let quoted = arg.split_once('=').map(|(key, value)| format!("{key}={value:?}")).unwrap_or_default();
        if let Ok(more) = arg.parse::<Table>().or_else(|_| quoted.parse::<Table>()) {
            merge(&mut settings, more);
        }
    }
    let id = settings.get("model_provider")?.as_str()?;
    let key = settings.get("model_providers")?.get(id)?.get("env_key")?.as_str()?;
    Some((format!("model_providers.{id}.env_key"), key.to_owned()))
}

fn merge(settings: &mut Table, more: Table) {
    for (key, value) in more {
        match (settings.get_mut(&key), value) {
            (Some(Value::Table(known)), Value::Table(more)) => merge(known, more),
            (_, value) => drop(settings.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(names: &str) -> BTreeMap<String, String> {
        names.split_whitespace().map(|name| (name.to_owned(), "1".to_owned())).collect()
    }

    #[test]
    fn what_a_chosen_way_needs_is_named_with_the_reason() {
        let lacks = |provider, own: &str, given: &str| -> Vec<(String, bool)> {
            let found = missing(provider, &[], &variables(own), &variables(given));
            found.into_iter().map(|one| (one.variable, one.is_kept_back)).collect()
        };
        let bedrock = "CLAUDE_CODE_USE_BEDROCK";
        assert_eq!(lacks(Provider::Claude, "HOME", "HOME"), [], "it may be signed in by a file");
        assert_eq!(lacks(Provider::Claude, bedrock, bedrock), [("AWS_REGION".to_owned(), false)]);
        let with_region = format!("{bedrock} AWS_DEFAULT_REGION");
        assert_eq!(lacks(Provider::Claude, &with_region, &with_region), []);
        assert_eq!(lacks(Provider::Claude, &with_region, bedrock), [("AWS_DEFAULT_REGION".to_owned(), true)]);
        assert_eq!(lacks(Provider::Claude, "ANTHROPIC_API_KEY", ""), [("ANTHROPIC_API_KEY".to_owned(), true)]);
        assert_eq!(lacks(Provider::Codex, "OPENAI_API_KEY", ""), [("OPENAI_API_KEY".to_owned(), true)]);
        assert_eq!(lacks(Provider::Codex, "", "OPENAI_API_KEY"), [], "the configuration sets it");
        let vertex = "GOOGLE_GENAI_USE_VERTEXAI";
        let needs = [("GOOGLE_CLOUD_PROJECT".to_owned(), false), ("GOOGLE_CLOUD_LOCATION".to_owned(), false)];
        assert_eq!(lacks(Provider::Gemini, vertex, vertex), needs);
        let with_project = format!("{vertex} GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_LOCATION");
        assert_eq!(lacks(Provider::Gemini, &with_project, &with_project), []);
        let off = BTreeMap::from([(bedrock.to_owned(), "0".to_owned())]);
        assert_eq!(missing(Provider::Claude, &[], &off, &off), []);
    }

    #[test]
    fn the_key_that_codex_is_configured_to_use_is_named() {
        let home = tempfile::tempdir().unwrap();
        let given = BTreeMap::from([("CODEX_HOME".to_owned(), home.path().display().to_string())]);
        let with = |name: &str| given.iter().map(|(k, v)| (k.clone(), v.clone())).chain(variables(name)).collect();
        let lacks = |args: &[&str], own: &BTreeMap<String, String>, given: &BTreeMap<String, String>| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let found = missing(Provider::Codex, &args, own, given);
            found.into_iter().map(|one| (one.variable, one.chosen_by, one.is_kept_back)).collect::<Vec<_>>()
        };
        assert_eq!(lacks(&[], &given, &given), []);
        let text =
            "model_provider = 'x'\n[model_providers.x]\nenv_key = 'X_KEY'\n[model_providers.y]\nenv_key = 'Y_KEY'\n";
        std::fs::write(home.path().join("config.toml"), text).unwrap();
        let x = |is_kept_back| [("X_KEY".to_owned(), "model_providers.x.env_key".to_owned(), is_kept_back)];
        assert_eq!(lacks(&[], &given, &given), x(false));
        assert_eq!(lacks(&[], &with("X_KEY"), &given), x(true));
        assert_eq!(lacks(&[], &with("X_KEY"), &with("X_KEY")), []);
        for arg in ["model_provider=y", "model_provider=\"y\""] {
            let found = lacks(&["-c", arg], &with("X_KEY"), &with("X_KEY"));
            assert_eq!(found, [("Y_KEY".to_owned(), "model_providers.y.env_key".to_owned(), false)]);
        }
        let inline = ["-c", "model_providers.z={name=\"z\",env_key=\"Z_KEY\"}", "-c", "model_provider=z"];
        assert_eq!(lacks(&inline, &given, &given)[0].0, "Z_KEY");
        // A provider of its maker, or one without a key, needs none.
        assert_eq!(lacks(&["-c", "model_provider=openai"], &given, &given), []);
    }
}
