//! Prompts of tasks that begin like a command of an agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ensemble_types::runs::Provider;

/// Files and folders that are looked at for the command of a person.
const MOST_LOOKED_AT: usize = 10_000;

/// The prompt as a task gives it to the agent. claude takes one that begins with a slash for a command, and answers
/// "/login isn't available" to "/login returns 500". A line feed before it makes it a text. The commands and skills that a person has
/// written are meant. Agents that speak ACP have commands that ask no permission, such as gemini's `/extensions install`, and they trim
/// the text; no task means one of these.
pub(crate) fn protected(
    provider: Provider,
    prompt: &str,
    directory: &Path,
    environment: &BTreeMap<String, String>,
) -> String {
    let word = prompt.trim_start().strip_prefix('/').and_then(|rest| rest.split_whitespace().next());
    if provider == Provider::Codex {
        return prompt.to_owned();
    }
    match word {
        Some(word) if provider == Provider::Claude && !is_command(word, directory, environment) => {
            format!("\n{prompt}")
        }
        _ if provider != Provider::Claude && prompt.trim_start().starts_with(['/', '$']) => format!("Task: {prompt}"),
        _ => prompt.to_owned(),
    }
}

/// Whether a person has a command or a skill of this name for the directory. That of a plugin has the plugin's name and a colon in it.
fn is_command(word: &str, directory: &Path, environment: &BTreeMap<String, String>) -> bool {
    let is_name = |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains('/');
    let mut parts = word.split(':');
    if !parts.clone().all(is_name) {
        return false;
    }
    if parts.clone().count() > 1 {
        return true;
    }
    let name = parts.next_back().unwrap_or_default();
    let own = environment.get("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let own = own.or_else(|| environment.get("HOME").map(|home| Path::new(home).join(".claude")));
    let of_project = directory.ancestors().map(|folder| folder.join(".claude"));
    of_project.chain(own).any(|place| {
        place.join("skills").join(name).join("SKILL.md").is_file()
            || has_file(&place.join("commands"), &format!("{name}.md"))
    })
}

/// Whether a folder or one below it has a file of this name.
fn has_file(folder: &Path, name: &str) -> bool {
    let (mut folders, mut looked_at) = (vec![folder.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MOST_LOOKED_AT {
                return false;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) if entry.file_name() == name => return true,
                _ => {}
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_a_text_unless_it_names_a_command_of_the_person() {
        let folder = tempfile::tempdir().unwrap();
        let (home, project) = (folder.path().join("home"), folder.path().join("work/project"));
        for file in ["commands/mine.md", "skills/deploy/SKILL.md"] {
            let path = home.join(".claude").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let path = project.join(".claude/commands/frontend/review.md");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        let below = project.join("src");
        let environment = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        let of = |provider, prompt| protected(provider, prompt, &below, &environment);
        for command in ["/mine", "/deploy to staging", "/review 7", "/plugin:do", "no command", ""] {
            assert_eq!(of(Provider::Claude, command), command);
        }
        for prompt in ["/login returns 500", "/clear cache", "/../review", "/etc/hosts is wrong", "/ x"] {
            assert_eq!(of(Provider::Claude, prompt), format!("\n{prompt}"));
            assert_eq!(of(Provider::Codex, prompt), prompt);
        }
        for prompt in ["/extensions install /w", " /init", "$HOME is wrong", "/mine"] {
            for provider in [Provider::Gemini, "opencode".parse().unwrap()] {
                assert_eq!(of(provider, prompt), format!("Task: {prompt}"));
            }
        }
        assert_eq!(of(Provider::Gemini, "Install it"), "Install it");
    }
}
