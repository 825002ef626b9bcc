//! Configuration from environment variables. Each has a description, and all mistakes are reported together.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

/// Reads variables, and collects their descriptions and their mistakes.
pub struct Vars {
    source: Source,
    faults: Vec<String>,
    known: Vec<Variable>,
}

type Source = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// One variable for the documentation.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub meaning: String,
    pub default: String,
}

/// All mistakes in the configuration, one on each line.
#[derive(Debug, thiserror::Error)]
#[error("the configuration is not usable:\n  {}", .0.join("\n  "))]
pub struct ConfigFaults(pub Vec<String>);

impl Vars {
    /// The variables of this process.
    pub fn from_env() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
        Self::from_fn(|name| std::env::var(name).ok())
    }

    /// Variables that a test or a parent program sets.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let map: HashMap<String, String> = pairs.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        Self::from_fn(move |name| map.get(name).cloned())
    }

    /// Variables that `choose` returns.
    pub fn over_env(
        choose: impl Fn(&str, &dyn Fn(&str) -> Option<String>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let env = Self::from_env().source;
        Self::from_fn(move |name| choose(name, &|name| env(name).filter(|value| !value.is_empty())))
    }

    pub fn from_fn(source: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { source: Arc::new(source), faults: Vec::new(), known: Vec::new() }
    }

    pub fn text(&mut self, name: &str, meaning: &str, default: &str) -> String {
        self.read(name, meaning, default).unwrap_or_else(|| default.to_owned())
    }

    pub fn optional(&mut self, name: &str, meaning: &str) -> Option<String> {
        self.read(name, meaning, "none")
    }

    pub fn required(&mut self, name: &str, meaning: &str) -> String {
        self.read(name, meaning, "required").unwrap_or_else(|| {
            self.add_error(name, &format!("is required: {meaning}"));
            String::new()
        })
    }

    /// A value of any type that can be parsed.
    pub fn parse<T: FromStr + Display>(&mut self, name: &str, meaning: &str, default: T) -> T
    where
        T::Err: Display,
    {
        match self.read(name, meaning, &default.to_string()) {
            None => default,
            Some(text) => text.parse().unwrap_or_else(|error| {
                self.add_error(name, &format!("is {text:?}: {error}"));
                default
            }),
        }
    }

    /// The same from the variable or from the file that `<NAME>_FILE` names, because the text may hold a password. The
    /// error does not contain the value.
    pub fn parse_secret<T: FromStr + Display>(&mut self, name: &str, meaning: &str, default: T) -> T
    where
        T::Err: Display,
    {
        let Some(text) = self.secret(name, meaning) else { return default };
        text.expose_secret().parse().unwrap_or_else(|error| {
            self.add_error(name, &format!("cannot be used: {error}"));
            default
        })
    }

    /// A duration in milliseconds.
    pub fn millis(&mut self, name: &str, meaning: &str, default: u64) -> Duration {
        Duration::from_millis(self.parse(name, meaning, default))
    }

    /// `true` / `false`, `1` / `0`, `yes` / `no`, `on` / `off`.
    pub fn flag(&mut self, name: &str, meaning: &str, default: bool) -> bool {
        match self.read(name, meaning, &default.to_string()).as_deref() {
            None => default,
            Some("true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            Some(other) => {
                let message = format!("is {other:?}; say true or false");
                self.add_error(name, &message);
                default
            }
        }
    }

    /// A list, separated by commas.
    pub fn list(&mut self, name: &str, meaning: &str, default: &str) -> Vec<String> {
        let text = self.text(name, meaning, default);
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    /// A secret: from the variable itself, or from the file that `<NAME>_FILE` names (how clusters mount secrets).
    pub fn secret(&mut self, name: &str, meaning: &str) -> Option<SecretString> {
        let file_name = format!("{name}_FILE");
        if let Some(value) = self.read(name, &format!("{meaning} (or {file_name}: the file that holds it)"), "none") {
            return Some(value.into());
        }
        let file = (self.source)(&file_name).filter(|file| !file.is_empty())?;
        match std::fs::read_to_string(&file) {
            Ok(text) if text.trim().is_empty() => {
                self.add_error(&file_name, &format!("names {file}, which is empty"));
                None
            }
            Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned().into()),
            Err(error) => {
                self.add_error(&file_name, &format!("names {file}, which cannot be read: {error}"));
                None
            }
        }
    }

    /// The same where a file that is not there counts as absent: a cluster makes no file for an optional key of a secret.
    pub fn optional_secret(&mut self, name: &str, meaning: &str) -> Option<SecretString> {
        let file = (self.source)(&format!("{name}_FILE")).filter(|file| !file.is_empty());
        let is_absent = file.is_some_and(|file| !std::path::Path::new(&file).exists());
        if is_absent { self.optional(name, meaning).map(SecretString::from) } else { self.secret(name, meaning) }
    }

    pub fn required_secret(&mut self, name: &str, meaning: &str) -> SecretString {
        self.secret(name, meaning).unwrap_or_else(|| {
            self.add_error(name, &format!("is required: {meaning}"));
            SecretString::from(String::new())
        })
    }

    /// Reports that a variable has a value that cannot be used.
    pub fn add_error(&mut self, name: &str, what: &str) {
        self.faults.push(format!("{name} {what}"));
    }

    /// All mistakes so far.
    pub fn finish(&self) -> Result<(), ConfigFaults> {
        if self.faults.is_empty() { Ok(()) } else { Err(ConfigFaults(self.faults.clone())) }
    }

    /// The variables that were read, in that order.
    pub fn known(&self) -> &[Variable] {
        &self.known
    }

    /// An empty variable counts as absent: compose files write `FOO=` for that.
    fn read(&mut self, name: &str, meaning: &str, default: &str) -> Option<String> {
        if !self.known.iter().any(|v| v.name == name) {
            self.known.push(Variable {
                name: name.to_owned(),
                meaning: meaning.to_owned(),
                default: default.to_owned(),
            });
        }
        (self.source)(name).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_reported_at_once() {
        let mut vars = Vars::from_pairs([("PORT", "eighty"), ("ON", "perhaps"), ("EMPTY", "")]);
        assert_eq!(vars.parse("PORT", "where", 80_u16), 80);
        assert!(vars.flag("ON", "whether", true));
        assert_eq!(vars.text("EMPTY", "what", "fallback"), "fallback");
        vars.required("MISSING", "who");
        let report = vars.finish().unwrap_err().to_string();
        for name in ["PORT", "ON", "MISSING"] {
            assert!(report.contains(name), "{report}");
        }
        assert_eq!(vars.known().len(), 4);
    }

    #[test]
    fn a_secret_comes_from_a_file_and_an_empty_one_is_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (good, empty) = (file("good", "s3cret\r\n"), file("empty", "\n"));
        let vars =
            [("A_FILE", good.as_str()), ("B_FILE", &empty), ("C_FILE", "/nonexistent"), ("D", ""), ("D_FILE", "")];
        let mut vars = Vars::from_pairs(vars);
        assert_eq!(vars.secret("A", "a").unwrap().expose_secret(), "s3cret");
        for name in ["B", "C", "D"] {
            assert!(vars.secret(name, name).is_none(), "{name}");
        }
        let report = vars.finish().unwrap_err().to_string();
        assert!(
            report.contains("B_FILE names") && report.contains("which is empty") && report.contains("C_FILE"),
            "{report}"
        );
        assert!(!report.contains("D_FILE"), "{report}");
    }

    #[test]
    fn an_optional_secret_may_have_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (there, empty) = (folder.path().join("there"), folder.path().join("empty"));
        std::fs::write(&there, "s3cret\n").unwrap();
        std::fs::write(&empty, "").unwrap();
        let vars = [
            ("A_FILE", there.to_str().unwrap()),
            ("B_FILE", "/nonexistent"),
            ("C_FILE", "/nonexistent"),
            ("C", "value"),
            ("D_FILE", empty.to_str().unwrap()),
        ];
        let mut vars = Vars::from_pairs(vars);
        assert_eq!(vars.optional_secret("A", "a").unwrap().expose_secret(), "s3cret");
        assert!(vars.optional_secret("B", "b").is_none());
        assert_eq!(vars.optional_secret("C", "c").unwrap().expose_secret(), "value");
        assert!(vars.finish().is_ok());
        assert!(vars.optional_secret("D", "d").is_none());
        assert!(vars.finish().unwrap_err().to_string().contains("which is empty"));
    }
}
