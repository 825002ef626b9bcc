//! Holds what operations cost against `tests/costs.toml`: exact counts, where times would be noise.

use std::collections::BTreeMap;

use crate::{Backend, statements};

/// Repetitions of an operation. The timers of a service run statements too, so the cheapest one counts.
const REPETITIONS: usize = 7;
const TABLE: &str = include_str!("../../../tests/costs.toml");

/// What operations of one service cost on one database.
pub struct Costs<'a> {
    service: &'a str,
    on: Backend,
    url: &'a str,
    found: BTreeMap<String, u64>,
}

impl<'a> Costs<'a> {
    /// `service` is a table of `tests/costs.toml`, `url` that of the [`crate::TestDatabase`].
    pub fn new(service: &'a str, on: Backend, url: &'a str) -> Self {
        Self { service, on, url, found: BTreeMap::new() }
    }

    /// Counts the statements of an operation, without those of what prepares it.
    pub async fn count<T>(
        &mut self,
        name: &str,
        mut prepare: impl AsyncFnMut() -> T,
        mut operation: impl AsyncFnMut(T),
    ) {
        let mut least = u64::MAX;
        for _ in 0..REPETITIONS {
            let prepared = prepare().await;
            let before = statements(self.url);
            operation(prepared).await;
            least = least.min(statements(self.url) - before);
        }
        self.found.insert(name.to_owned(), least);
    }

    /// Fails where an operation costs something else than the table says, also less.
    pub fn check(self) {
        let table: BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>> =
            toml::from_str(TABLE).unwrap_or_else(|error| panic!("tests/costs.toml: {error}"));
        let database = if self.on == Backend::Postgres { "postgres" } else { "sqlite" };
        let rows = table.get(self.service).cloned().unwrap_or_default();
        let wanted: BTreeMap<String, u64> = rows
            .into_iter()
            .map(|(name, costs)| {
                let cost = costs.get(database).copied().unwrap_or_else(|| panic!("{name} has no {database}"));
                (name, cost)
            })
            .collect();
        assert!(
            self.found == wanted,
            "[{}] on {database} costs\n{:#?}\nand tests/costs.toml says\n{wanted:#?}\nA change that makes something dearer \
             says why in its commit.",
            self.service,
            self.found
        );
    }
}
