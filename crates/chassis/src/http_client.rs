//! The HTTP client for calls to other services and to outside servers.

use std::time::Duration;

/// An HTTP client without a proxy and without redirects, for the whole process. Cheap to clone.
///
/// # Errors
/// The system's TLS settings cannot be read.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(1))
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
}
