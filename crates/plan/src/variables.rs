//! Variables of a plan: `{{vars.name}}` in prompts, titles and directories stands for the value of `--var name=value`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const BEGIN: &str = "{{";
const END: &str = "}}";

/// The values, and which of them the plan uses.
#[derive(Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
}

/// Reads `name=value`.
pub fn assignment(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    if !is_name(name) {
        return Err("must be NAME=VALUE, with a name of A-Z a-z 0-9 _ - that begins with a letter");
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl Variables {
    /// A later value replaces an earlier one.
    pub fn new(values: &[(String, String)]) -> Self {
        Self { values: values.iter().cloned().collect(), used: RefCell::default() }
    }

    /// The text with values in place of variables. Values are not searched for variables again.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        self.filled(text, str::to_owned)
    }

    /// The same for a prompt, in which the server looks for placeholders: those in a value are text, which may be of other people.
    pub(crate) fn fill_prompt(&self, text: &str) -> Result<String, String> {
        self.filled(text, |value| value.replace(BEGIN, "\\{{"))
    }

    fn filled(&self, text: &str, written: impl Fn(&str) -> String) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(BEGIN) {
            out.push_str(before);
            // The server takes a backslash for the sign that these braces are meant as they are.
            let is_literal = before.ends_with('\\');
            let named = after.split_once(END).and_then(|(name, rest)| Some((name.trim().strip_prefix("vars.")?, rest)));
            let Some((name, behind)) = named.filter(|_| !is_literal) else {
                out.push_str(BEGIN);
                rest = after;
                continue;
            };
            let value = self.values.get(name).ok_or_else(|| self.unknown(name))?;
            self.used.borrow_mut().insert(name.to_owned());
            out.push_str(&written(value));
            rest = behind;
        }
        Ok(out + rest)
    }

    fn unknown(&self, name: &str) -> String {
        if is_name(name) {
            format!("{{{{vars.{name}}}}} has no value. Give it one: --var {name}=…")
        } else {
            format!("{{{{vars.{name}}}}} is not the name of a variable: A-Z a-z 0-9 _ - after a letter")
        }
    }

    /// The names of values that the plan does not use.
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.values.keys().filter(|name| !used.contains(*name)).cloned().collect()
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_filled_in_once() {
        let values = ["a=1 {{vars.b}}", "b=2"].map(|text| assignment(text).unwrap());
        let variables = Variables::new(&values);
        assert_eq!(
            variables.fill("{{vars.a}}, {{tasks.x.output}} {{ open").unwrap(),
            "1 {{vars.b}}, {{tasks.x.output}} {{ open"
        );
        assert_eq!(variables.unused(), ["b"]);
        assert_eq!(variables.fill("{{ vars.b }}").unwrap(), "2");
        assert!(variables.unused().is_empty());
        assert_eq!(variables.fill("\\{{vars.c}}").unwrap(), "\\{{vars.c}}");
        assert_eq!(
            variables.fill_prompt("{{vars.a}} {{tasks.x.output}}").unwrap(),
            "1 \\{{vars.b}} {{tasks.x.output}}",
            "braces of a value are text"
        );
        assert!(variables.fill("{{vars.c}}").unwrap_err().contains("--var c="));
        assert!(assignment("a").is_err() && assignment("a b=c").is_err() && assignment("a=").is_ok());
    }
}
