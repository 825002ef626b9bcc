//! One request to one service: to the next of its addresses, once.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::addresses::{DRAINING, REFUSED, Replicas};
use super::failure::Failure;
use super::upload::{Body, Upload};
use crate::EdgeProxy;
use crate::config::UpstreamLimits;
use crate::domain::header_policy::connection_options;

/// How long a long-poll may go on after the drain began: a service that stops, too, and short waits are over by then.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

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

/// How much of an answer is read at once. With hyper's default, 408 KiB, each stream that a client does not read costs as
/// much, and reqwest, which stands on the same client, cannot change it: 1,000 such streams took 416 MiB.
const READ_AT_ONCE: usize = 16 << 10;

pub(crate) type Client = hyper_util::client::legacy::Client<HttpConnector, Body>;

/// A client that adds nothing of its own to requests and answers.
pub(crate) fn client(limits: UpstreamLimits) -> Client {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(limits.connect));
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.set_keepalive_interval(Some(Duration::from_secs(10)));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(Duration::from_secs(30)));
    hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(limits.idle)
        .pool_max_idle_per_host(limits.max_idle)
        .http1_max_buf_size(READ_AT_ONCE)
        .build(connector)
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
    pub(crate) async fn send(&self, edge: &EdgeProxy, replicas: &Replicas) -> Result<Response<Incoming>, Failure> {
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

    async fn attempt(&self, edge: &EdgeProxy, address: SocketAddr) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder().method(self.method.clone()).uri(format!("http://{address}{}", self.target));
        let Ok(mut request) = request.body(self.upload.body()) else { return Err(Failure::NoAddress) };
        *request.headers_mut() = self.headers.clone();
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
            answered = edge.client.request(request) => Ok(answered?),
            () = too_late => Err(Failure::Timeout),
            () = stopping, if self.is_long_poll => Err(Failure::Draining),
        }
    }
}
