//! Machines in texts and documents, which name them by their ids.

use ensemble_types::time::Timestamp;
use serde_json::Value;

use super::Machines;

impl Machines {
    /// A text of the server with names in place of the ids of machines, and times as `clock` writes them.
    pub fn explain(&self, text: &str, clock: impl Fn(Timestamp) -> String) -> String {
        let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(begin) = rest.find(is_of_id) {
            let (before, word) = rest.split_at(begin);
            if let Some((at, after)) = time(word) {
                out.push_str(before);
                out.push_str(&clock(at));
                rest = after;
                continue;
            }
            let (word, after) = word.split_at(word.find(|c| !is_of_id(c)).unwrap_or(word.len()));
            out.push_str(before);
            match self.all.iter().find(|known| known.machine.id.as_str() == word) {
                Some(known) => out.push_str(&self.called(&known.machine.id)),
                None => out.push_str(word),
            }
            rest = after;
        }
        out + rest
    }

    /// Adds `machineName` wherever a JSON document has `machineId`.
    pub fn with_names(&self, mut value: Value) -> Value {
        self.add_names(&mut value);
        value
    }

    fn add_names(&self, value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(|value| self.add_names(value)),
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.add_names(value));
                if let Some(id) = members.get("machineId") {
                    let name = id.as_str().and_then(|id| self.name(&id.parse().ok()?)).map(str::to_owned);
                    members.insert("machineName".to_owned(), name.into());
                }
            }
            _ => {}
        }
    }
}

/// A time at the beginning of a text, and what follows.
fn time(text: &str) -> Option<(Timestamp, &str)> {
    const LENGTH: usize = "2026-11-23T14:05:00.000Z".len();
    let (time, after) = text.split_at_checked(LENGTH)?;
    Some((time.parse().ok()?, after))
}
