//! Prompts that take in what other tasks came to: `{{tasks.<taskKey>.output}}`.

use super::draft::is_task_key;

/// A prompt with places for outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    Output(&'a str),
}

/// A prompt may become so large (bytes).
pub(crate) const LARGEST_PROMPT: usize = 1 << 20;

impl<'a> Template<'a> {
    /// What looks almost like a place is text. `\{{` is `{{`.
    pub(crate) fn parse(prompt: &'a str) -> Self {
        let mut parts = Vec::new();
        let mut rest = prompt;
        while let Some(at) = rest.find("{{") {
            let (before, place) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('\\') {
                parts.push(Part::Literal(before));
                parts.push(Part::Literal("{{"));
                rest = place.get(2..).unwrap_or("");
            } else if let Some((key, after)) = output_place(place) {
                parts.push(Part::Literal(before));
                parts.push(Part::Output(key));
                rest = after;
            } else {
                // One brace only, so that `{{{tasks.a.output}}` still finds its place.
                let (literal, after) = rest.split_at(at + 1);
                parts.push(Part::Literal(literal));
                rest = after;
            }
        }
        parts.push(Part::Literal(rest));
        parts.retain(|part| *part != Part::Literal(""));
        Self { parts }
    }

    /// Whether the prompt can be used as it is.
    pub(crate) fn is_plain(&self, prompt: &str) -> bool {
        !prompt.contains("\\{{") && self.keys().next().is_none()
    }

    /// The keys of the tasks whose outputs are wanted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Output(key) => Some(*key),
            Part::Literal(_) => None,
        })
    }

    /// The prompt with the outputs in their places; nothing when it would be larger than [`LARGEST_PROMPT`]. Outputs are
    /// not looked into.
    pub(crate) fn render<'b>(&self, output: impl Fn(&str) -> &'b str) -> Option<String> {
        let mut prompt = String::new();
        for part in &self.parts {
            let piece = match part {
                Part::Literal(text) => text,
                Part::Output(key) => output(key),
            };
            if prompt.len() + piece.len() > LARGEST_PROMPT {
                return None;
            }
            prompt.push_str(piece);
        }
        Some(prompt)
    }
}

fn output_place(text: &str) -> Option<(&str, &str)> {
    let (key, after) = text.strip_prefix("{{tasks.")?.split_once(".output}}")?;
    is_task_key(key).then_some((key, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(prompt: &str) -> String {
        Template::parse(prompt).render(|key| if key == "a" { "{{tasks.b.output}}" } else { "B" }).unwrap()
    }

    #[test]
    fn outputs_are_put_in_once_and_never_looked_into() {
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
            ("ä{{ö", "ä{{ö"),
            ("", ""),
        ] {
            assert_eq!(render(prompt), expected, "{prompt}");
        }
    }

    #[test]
    fn a_prompt_does_not_grow_without_bound() {
        let big = "x".repeat(LARGEST_PROMPT / 2 + 1);
        assert!(Template::parse("{{tasks.b.output}}").render(|_| &big).is_some());
        assert!(Template::parse("{{tasks.b.output}}{{tasks.b.output}}").render(|_| &big).is_none());
    }
}
