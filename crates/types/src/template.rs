//! Prompts with placeholders for the outputs of other tasks: `{{tasks.<taskKey>.output}}`.

use crate::task_key::{MAX_TASK_KEY, is_task_key};

/// A prompt, split at its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    Output(&'a str),
}

/// The largest prompt after rendering, in bytes.
pub const MAX_PROMPT: usize = 1 << 20;

impl<'a> Template<'a> {
    /// A malformed placeholder is literal text. `\{{` stands for a literal `{{`.
    pub fn parse(prompt: &'a str) -> Self {
        let mut parts = Vec::new();
        let mut rest = prompt;
        while let Some(at) = rest.find("{{") {
            let (before, placeholder) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('\\') {
                parts.push(Part::Literal(before));
                parts.push(Part::Literal("{{"));
                rest = placeholder.get(2..).unwrap_or("");
            } else if let Some((key, after)) = output_placeholder(placeholder) {
                parts.push(Part::Literal(before));
                parts.push(Part::Output(key));
                rest = after;
            } else {
                // Skip one brace only, so that the placeholder in `{{{tasks.a.output}}` is found.
                let (literal, after) = rest.split_at(at + 1);
                parts.push(Part::Literal(literal));
                rest = after;
            }
        }
        parts.push(Part::Literal(rest));
        parts.retain(|part| *part != Part::Literal(""));
        Self { parts }
    }

    /// Whether rendering would not change the prompt.
    pub fn is_plain(&self, prompt: &str) -> bool {
        !prompt.contains("\\{{") && self.keys().next().is_none()
    }

    /// The keys of the tasks whose outputs the prompt uses.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Output(key) => Some(*key),
            Part::Literal(_) => None,
        })
    }

    /// The prompt with the outputs filled in. `None` when it would be larger than [`MAX_PROMPT`]. Placeholders inside
    /// outputs are not expanded.
    pub fn render<'b>(&self, output: impl Fn(&str) -> &'b str) -> Option<String> {
        let mut prompt = String::new();
        for part in &self.parts {
            let piece = match part {
                Part::Literal(text) => text,
                Part::Output(key) => output(key),
            };
            if prompt.len() + piece.len() > MAX_PROMPT {
                return None;
            }
            prompt.push_str(piece);
        }
        Some(prompt)
    }
}

fn output_placeholder(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("{{tasks.")?;
    // Only as far as a key can reach: searching the rest of the prompt for each placeholder would be quadratic.
    let end = rest.bytes().take(MAX_TASK_KEY + 1).position(|byte| byte == b'.')?;
    let (key, after) = rest.split_at_checked(end)?;
    is_task_key(key).then_some((key, after.strip_prefix(".output}}")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(prompt: &str) -> String {
        Template::parse(prompt).render(|key| if key == "a" { "{{tasks.b.output}}" } else { "B" }).unwrap()
    }

    #[test]
    fn outputs_are_filled_in_once_and_not_expanded_again() {
        for (prompt, expected) in [
            ("x {{tasks.b.output}} y {{tasks.b.output}}", "x B y B"),
            ("{{tasks.a.output}}", "{{tasks.b.output}}"),
            (r"\{{tasks.b.output}}", "{{tasks.b.output}}"),
            (r"a \{{ b", "a {{ b"),
            ("{{{tasks.b.output}}}", "{B}"),
            ("{{ tasks.b.output }}", "{{ tasks.b.output }}"),
            ("{{tasks.1b.output}}", "{{tasks.1b.output}}"),
            ("{{tasks.b.prompt}} {{tasks.b.output}}", "{{tasks.b.prompt}} B"),
            ("{{", "{{"),
            ("{{tasks.ä.output}} {{tasks.b.outpu}} {{tasks.b", "{{tasks.ä.output}} {{tasks.b.outpu}} {{tasks.b"),
            ("ä{{ö", "ä{{ö"),
            ("", ""),
        ] {
            assert_eq!(render(prompt), expected, "{prompt}");
        }
    }

    #[test]
    fn a_rendered_prompt_has_a_maximum_size() {
        let big = "x".repeat(MAX_PROMPT / 2 + 1);
        assert!(Template::parse("{{tasks.b.output}}").render(|_| &big).is_some());
        assert!(Template::parse("{{tasks.b.output}}{{tasks.b.output}}").render(|_| &big).is_none());
    }

    #[test]
    fn a_rendered_prompt_may_have_exactly_the_maximum_size() {
        let (most, more) = ("x".repeat(1_048_575), "x".repeat(1_048_576));
        let template = Template::parse("y{{tasks.b.output}}");
        assert_eq!(template.render(|_| &most).map(|prompt| prompt.len()), Some(1_048_576));
        assert_eq!(template.render(|_| &more), None);
    }

    #[test]
    fn the_longest_key_is_found_and_a_longer_one_is_literal_text() {
        for (length, found) in [(1, 1), (MAX_TASK_KEY, 1), (MAX_TASK_KEY + 1, 0)] {
            let prompt = format!("{{{{tasks.{}.output}}}}", "k".repeat(length));
            assert_eq!(Template::parse(&prompt).keys().count(), found, "{length}");
        }
    }

    #[test]
    fn a_prompt_is_plain_when_rendering_changes_nothing() {
        for (prompt, plain) in [
            ("text", true),
            ("{{ tasks.b.output }}", true),
            ("{{tasks.b.output}}", false),
            (r"\{{", false),
            (r"\{{ {{tasks.b.output}}", false),
        ] {
            assert_eq!(Template::parse(prompt).is_plain(prompt), plain, "{prompt}");
        }
        assert_eq!(Template::parse("{{tasks.a.output}} {{tasks.b.output}}").keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
