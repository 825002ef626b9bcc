//! The clock of a service, which tests can replace. Decisions that concern several processes use the database's clock.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use ensemble_types::time::Timestamp;

/// Returns the current time. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self(Arc::new(system_now))
    }

    /// A clock that a test sets.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn system_now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}
