//! Holds what operations cost against `tests/costs.toml`: exact counts, where times would be noise.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::{Backend, plans, sql, statements};

/// Repetitions of an operation. The timers of a service run statements too, so the cheapest one counts.
const REPETITIONS: usize = 7;
/// Bytes of the write-ahead log by which an operation may differ from the table. An update writes what differs from the row before, and
/// two times differ in one byte or in several. The entry of an index takes more than twice as much.
const NEAR: u64 = 24;
const TABLE: &str = include_str!("../../../tests/costs.toml");

/// What operations of one service cost on one database.
pub struct Costs<'a> {
    service: &'a str,
    on: Backend,
    url: &'a str,
    requests: Box<dyn Fn() -> u64 + 'a>,
    found: BTreeMap<String, Cost>,
}

/// What one run of an operation costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    statements: u64,
    requests: u64,
    /// Read from tables; zero on SQLite.
    rows: u64,
    /// Bytes; zero on SQLite.
    wal: u64,
}

impl Cost {
    fn is(&self, other: &Self) -> bool {
        self.wal.abs_diff(other.wal) <= NEAR && Self { wal: other.wal, ..*self } == *other
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Row {
    postgres: u64,
    sqlite: u64,
    requests: u64,
    rows: u64,
    wal: u64,
}

impl<'a> Costs<'a> {
    /// `service` is a table of `tests/costs.toml`, `url` that of the [`crate::TestDatabase`], which [`crate::explained`] has made.
    pub fn new(service: &'a str, on: Backend, url: &'a str) -> Self {
        Self { service, on, url, requests: Box::new(|| 0), found: BTreeMap::new() }
    }

    /// `requests` says how many requests the service has sent to others until now.
    #[must_use]
    pub fn with_requests(self, requests: impl Fn() -> u64 + 'a) -> Self {
        Self { requests: Box::new(requests), ..self }
    }

    /// Counts what an operation costs, without what prepares it.
    pub async fn count<T>(
        &mut self,
        name: &str,
        mut prepare: impl AsyncFnMut() -> T,
        mut operation: impl AsyncFnMut(T),
    ) {
        if self.on == Backend::Postgres {
            // So that it knows the best index.
            sql::execute(self.url, "ANALYZE").await;
        }
        let mut least = Cost { statements: u64::MAX, requests: u64::MAX, rows: u64::MAX, wal: u64::MAX };
        for _ in 0..REPETITIONS {
            let prepared = prepare().await;
            let before = (statements(self.url), (self.requests)(), self.end_of_log());
            operation(prepared).await;
            let work = self.work_since(before.2);
            least = Cost {
                statements: least.statements.min(statements(self.url) - before.0),
                requests: least.requests.min((self.requests)() - before.1),
                rows: least.rows.min(work.rows),
                wal: least.wal.min(work.wal),
            };
        }
        self.found.insert(name.to_owned(), least);
    }

    /// Fails where an operation costs something else than the table says, also less.
    pub fn check(self) {
        let is_postgres = self.on == Backend::Postgres;
        let cost = |row: Row| Cost {
            statements: if is_postgres { row.postgres } else { row.sqlite },
            requests: row.requests,
            rows: if is_postgres { row.rows } else { 0 },
            wal: if is_postgres { row.wal } else { 0 },
        };
        let wanted: BTreeMap<String, Cost> =
            table(self.service).into_iter().map(|(name, row)| (name, cost(row))).collect();
        let names = self.found.keys().chain(wanted.keys()).collect::<BTreeSet<_>>().into_iter();
        let differ: Vec<String> = names
            .filter(|name| {
                !self.found.get(*name).zip(wanted.get(*name)).is_some_and(|(found, wanted)| found.is(wanted))
            })
            .map(|name| format!("{name}: {:?}, and not {:?}", self.found.get(name), wanted.get(name)))
            .collect();
        assert!(
            differ.is_empty(),
            "[{}] on {:?} costs other than tests/costs.toml says:\n{}\nA change that makes something dearer says why in its commit.",
            self.service,
            self.on,
            differ.join("\n")
        );
    }

    fn end_of_log(&self) -> u64 {
        let end = if self.on == Backend::Postgres { plans::end_of_log() } else { Ok(0) };
        end.unwrap_or_else(|error| panic!("plans cannot be read: {error:#}"))
    }

    fn work_since(&self, end: u64) -> plans::Work {
        let work =
            if self.on == Backend::Postgres { plans::work_since(end, self.url) } else { Ok(plans::Work::default()) };
        work.unwrap_or_else(|error| panic!("plans cannot be read: {error:#}"))
    }
}

/// How many requests the table allows a program for this.
pub fn requests_of(program: &str, name: &str) -> u64 {
    table(program).get(name).unwrap_or_else(|| panic!("tests/costs.toml has no {name}")).requests
}

fn table(service: &str) -> BTreeMap<String, Row> {
    let mut table: BTreeMap<String, BTreeMap<String, Row>> =
        toml::from_str(TABLE).unwrap_or_else(|error| panic!("tests/costs.toml: {error}"));
    table.remove(service).unwrap_or_default()
}
