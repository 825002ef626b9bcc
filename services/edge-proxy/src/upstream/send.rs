//! One request to one service: to the next of its addresses, once.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::header::{CONNECTION, HeaderMap};
use reqwest::{Method, Response, Url};

use super::addresses::{DRAINING, REFUSED, Replicas};
use super::failure::Failure;
use super::upload::Upload;
use crate::EdgeProxy;
use crate::config::UpstreamLimits;
use crate::domain::header_policy::connection_options;

/// How long a long-poll may go on after the drain began: long enough for a service that stops, too, to answer it.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A request as a service will see it.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) upload: Upload,
    /// Reading again changes nothing.
    pub(crate) is_repeatable: bool,
    pub(crate) is_long_poll: bool,
}

/// A client that adds nothing of its own to requests and answers.
pub(crate) fn client(limits: UpstreamLimits) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(limits.connect)
        .pool_idle_timeout(limits.idle)
        .pool_max_idle_per_host(limits.max_idle)
        .tcp_keepalive(Duration::from_secs(30))
        .tcp_keepalive_interval(Duration::from_secs(10));
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(Duration::from_secs(30));
    builder.build()
}

/// Whether a service says that it is about to stop. It says so for no other reason.
fn says_close(fields: &HeaderMap) -> bool {
    let options = connection_options(fields.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok()));
    options.iter().any(|option| option.eq_ignore_ascii_case("close"))
}

impl Outgoing<'_> {
    /// Sends the request and waits for the head of the answer. The next address is tried when a connection was refused,
    /// because nothing was sent then. A repeatable request is sent once more when its connection broke before the answer:
    /// a kept connection may have been closed by the service just before the request arrived.
    pub(crate) async fn send(&self, edge: &EdgeProxy, replicas: &Replicas) -> Result<Response, Failure> {
        let mut addresses = replicas.in_turn();
        if self.is_repeatable {
            addresses.extend(addresses.first().copied());
        }
        let (mut last_failure, mut is_repeated) = (Failure::NoAddress, false);
        for address in addresses {
            match self.attempt(edge, address).await {
                Ok(answer) => {
                    if says_close(answer.headers()) {
                        replicas.set_aside(address, DRAINING);
                    }
                    return Ok(answer);
                }
                Err(failure @ Failure::Connect(_)) => {
                    replicas.set_aside(address, REFUSED);
                    last_failure = failure;
                }
                Err(failure @ Failure::Broken(_)) if self.is_repeatable && !is_repeated => {
                    is_repeated = true;
                    last_failure = failure;
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(last_failure)
    }

    async fn attempt(&self, edge: &EdgeProxy, address: SocketAddr) -> Result<Response, Failure> {
        let Ok(url) = Url::parse(&format!("http://{address}{}", self.target)) else { return Err(Failure::NoAddress) };
        let mut request = reqwest::Request::new(self.method.clone(), url);
        *request.headers_mut() = self.headers.clone();
        *request.body_mut() = self.upload.body();
        let limits = edge.config.upstream;
        // The time that the client takes for its body does not count as the service's.
        let too_late = async {
            self.upload.has_come().await;
            tokio::time::sleep(if self.is_long_poll { limits.long_poll } else { limits.ordinary }).await;
        };
        let stopping = async {
            edge.drain.closing().await;
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            answered = edge.client.execute(request) => Ok(answered?),
            () = too_late => Err(Failure::Timeout),
            () = stopping, if self.is_long_poll => Err(Failure::Draining),
        }
    }
}
