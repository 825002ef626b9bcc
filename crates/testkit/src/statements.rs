//! Counts the statements that a service in the process of the test runs on its database, so that a test can hold what each item
//! of a large request costs, and gives their texts, so that a test can ask the database how it runs them. Statements of other
//! processes are not seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};

/// By the place of the database.
static SEEN: LazyLock<Mutex<HashMap<String, Arc<Seen>>>> = LazyLock::new(Mutex::default);

/// What was run on a database.
#[derive(Default)]
struct Seen {
    count: AtomicU64,
    /// Kept while a test asks for them.
    texts: Mutex<Option<Vec<String>>>,
}

/// What counts for one connection.
#[derive(Default)]
struct Counting(Option<Arc<Seen>>);

impl Instrumentation for Counting {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartEstablishConnection { url, .. } => self.0 = Some(seen_on(url)),
            InstrumentationEvent::FinishQuery { .. } => {
                if let Some(seen) = &self.0 {
                    seen.count.fetch_add(1, Ordering::Relaxed);
                }
            }
            InstrumentationEvent::StartQuery { query, .. } => {
                let Some(seen) = &self.0 else { return };
                if let Some(texts) = &mut *seen.texts.lock().unwrap_or_else(PoisonError::into_inner) {
                    let text = query.to_string();
                    texts.push(text.split(" -- binds: ").next().unwrap_or(&text).to_owned());
                }
            }
            _ => {}
        }
    }
}

/// From now on, new connections of this process are counted.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let installed = set_default_instrumentation(|| Some(Box::new(Counting::default())));
        installed.unwrap_or_else(|error| panic!("statements cannot be counted: {error}"));
    });
}

/// How many statements have ended on the database of a [`crate::TestDatabase`] until now, those that begin and end transactions
/// included.
pub fn statements(url: &str) -> u64 {
    seen_on(url).count.load(Ordering::Relaxed)
}

/// The texts of the statements that are run during `operation`, with the parameters of the database: `$1` or `?`.
pub async fn statement_texts(url: &str, operation: impl Future<Output = ()>) -> Vec<String> {
    let seen = seen_on(url);
    let keep = |texts| std::mem::replace(&mut *seen.texts.lock().unwrap_or_else(PoisonError::into_inner), texts);
    keep(Some(Vec::new()));
    operation.await;
    keep(None).unwrap_or_default()
}

fn seen_on(url: &str) -> Arc<Seen> {
    // Services add options to the URL.
    let place = url.strip_prefix("sqlite:").unwrap_or(url);
    let place = place.split('?').next().unwrap_or(place);
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(seen.entry(place.to_owned()).or_default())
}
