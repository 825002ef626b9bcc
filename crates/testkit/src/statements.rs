//! Counts the statements that a service in the process of the test runs on its database, so that a test can hold what each item
//! of a large request costs. Statements of other processes are not seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};

/// By the place of the database.
static COUNTS: LazyLock<Mutex<HashMap<String, Arc<AtomicU64>>>> = LazyLock::new(Mutex::default);

/// What counts for one connection.
#[derive(Default)]
struct Counting(Option<Arc<AtomicU64>>);

impl Instrumentation for Counting {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartEstablishConnection { url, .. } => self.0 = Some(count_of(url)),
            InstrumentationEvent::StartQuery { .. } => {
                if let Some(count) = &self.0 {
                    count.fetch_add(1, Ordering::Relaxed);
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

/// How many statements were run on the database of a [`crate::TestDatabase`] until now, those that begin and end transactions
/// included.
pub fn statements(url: &str) -> u64 {
    count_of(url).load(Ordering::Relaxed)
}

fn count_of(url: &str) -> Arc<AtomicU64> {
    // Services add options to the URL.
    let place = url.strip_prefix("sqlite:").unwrap_or(url);
    let place = place.split('?').next().unwrap_or(place);
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(counts.entry(place.to_owned()).or_default())
}
