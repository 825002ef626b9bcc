//! What this computer calls itself.

use std::fmt;
use std::sync::LazyLock;

/// What this computer calls itself in the account's list. Other devices with these names make it end in a number. It is found out when it is
/// needed first.
pub struct Computer(LazyLock<Called, Box<dyn FnOnce() -> Called + Send>>);

/// The names of a computer.
#[derive(Clone, Debug)]
pub struct Called {
    /// The device, for example `ada@desk`.
    pub device: String,
    /// The machine, for example `desk`.
    pub host: String,
}

impl Computer {
    /// `find` is called at most once.
    pub fn new(find: impl FnOnce() -> Called + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(find)))
    }

    /// Both names.
    pub fn named(name: &str) -> Self {
        let called = Called { device: name.to_owned(), host: name.to_owned() };
        Self::new(|| called)
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// The name of the machine.
    pub fn host(&self) -> &str {
        &self.0.host
    }
}

impl fmt::Debug for Computer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computer")
    }
}
