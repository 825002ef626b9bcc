//! The ways to sign in that the variables of a person choose, and what each of them needs, from the pages of the programs' makers.

use std::collections::BTreeMap;

use ensemble_types::runs::Provider;

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
    pub variable: &'static str,
    /// The variable that has chosen the way.
    pub chosen_by: &'static str,
    /// The runner has it, and the list of variables that the program may inherit leaves it out.
    pub is_kept_back: bool,
}

/// What the program lacks. `own` are the runner's variables, `given` those of the program.
pub(crate) fn missing(
    provider: Provider,
    own: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> Vec<Missing> {
    let ways = match provider {
        Provider::Claude => CLAUDE,
        Provider::Codex => CODEX,
        Provider::Gemini => GEMINI,
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
            Some(Missing { variable, chosen_by: switch, is_kept_back: kept_back.is_some() })
        })
    });
    lacking.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(names: &str) -> BTreeMap<String, String> {
        names.split_whitespace().map(|name| (name.to_owned(), "1".to_owned())).collect()
    }

    #[test]
    fn what_a_chosen_way_needs_is_named_with_the_reason() {
        let lacks = |provider, own: &str, given: &str| -> Vec<(&'static str, bool)> {
            let found = missing(provider, &variables(own), &variables(given));
            found.into_iter().map(|one| (one.variable, one.is_kept_back)).collect()
        };
        let bedrock = "CLAUDE_CODE_USE_BEDROCK";
        assert_eq!(lacks(Provider::Claude, "HOME", "HOME"), [], "it may be signed in by a file");
        assert_eq!(lacks(Provider::Claude, bedrock, bedrock), [("AWS_REGION", false)]);
        let with_region = format!("{bedrock} AWS_DEFAULT_REGION");
        assert_eq!(lacks(Provider::Claude, &with_region, &with_region), []);
        assert_eq!(lacks(Provider::Claude, &with_region, bedrock), [("AWS_DEFAULT_REGION", true)]);
        assert_eq!(lacks(Provider::Claude, "ANTHROPIC_API_KEY", ""), [("ANTHROPIC_API_KEY", true)]);
        assert_eq!(lacks(Provider::Codex, "OPENAI_API_KEY", ""), [("OPENAI_API_KEY", true)]);
        assert_eq!(lacks(Provider::Codex, "", "OPENAI_API_KEY"), [], "the configuration sets it");
        let vertex = "GOOGLE_GENAI_USE_VERTEXAI";
        let needs = [("GOOGLE_CLOUD_PROJECT", false), ("GOOGLE_CLOUD_LOCATION", false)];
        assert_eq!(lacks(Provider::Gemini, vertex, vertex), needs);
        let with_project = format!("{vertex} GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_LOCATION");
        assert_eq!(lacks(Provider::Gemini, &with_project, &with_project), []);
        let off = BTreeMap::from([(bedrock.to_owned(), "0".to_owned())]);
        assert_eq!(missing(Provider::Claude, &off, &off), []);
    }
}
