//! Calls from one service to another, and to the servers it works with.

use std::sync::Arc;
use std::time::Duration;

use thread_local::ThreadLocal;

/// HTTP clients without a proxy and without redirects, one for each thread.
///
/// A connection is served by the runtime in which it was opened, and each thread that serves HTTP has one of its own. An
/// answer that has to be handed from thread to thread costs both of them a wake-up, a good part of a small call; so a thread
/// keeps connections for itself.
#[derive(Clone, Debug)]
pub struct HttpClients {
    first: reqwest::Client,
    of_threads: Arc<ThreadLocal<reqwest::Client>>,
}

impl HttpClients {
    /// # Errors
    /// The system's TLS settings cannot be read.
    pub fn new() -> Result<Self, reqwest::Error> {
        let (first, of_threads) = (build()?, ThreadLocal::new());
        of_threads.get_or(|| first.clone());
        Ok(Self { first, of_threads: Arc::new(of_threads) })
    }

    /// The client of the present thread. Ask for it anew for each call.
    pub fn for_this_thread(&self) -> &reqwest::Client {
        // What could be built once can be built again; if not, a shared client is only slower.
        self.of_threads.get_or(|| build().unwrap_or_else(|_| self.first.clone()))
    }
}

fn build() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(1))
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
}
