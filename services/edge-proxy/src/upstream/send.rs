//! One request to one service: to the next of its addresses, once.

use std::net::SocketAddr;
use std::time::Duration;

use ensemble_chassis::Drain;
use reqwest::header::{CONNECTION, CONTENT_LENGTH, HeaderMap};
use reqwest::{Method, Response, Url};

use super::addresses::{DRAINING, REFUSED, Replicas};
use super::failure::Failure;
use super::upload::Upload;
use crate::config::UpstreamLimits;

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
    let options = fields.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

impl Outgoing<'_> {
    /// Sends the request and waits for the head of the answer. The next address is tried when a connection was refused,
    /// because nothing was sent then. A repeatable request is sent once more when its connection broke before the answer:
    /// a kept connection may have been closed by the service just before the request arrived.
    ///
    /// # Errors
    /// There was no answer.
    pub(crate) async fn send(
        &self,
        client: &reqwest::Client,
        replicas: &Replicas,
        limits: UpstreamLimits,
        drain: &Drain,
    ) -> Result<Response, Failure> {
        let mut addresses = replicas.in_turn();
        if self.is_repeatable {
            addresses.extend(addresses.first().copied());
        }
        let (mut refused, mut is_repeated) = (Failure::NoAddress, false);
        for address in addresses {
            match self.attempt(client, address, limits, drain).await {
                Ok(answer) => {
                    if says_close(answer.headers()) {
                        replicas.set_aside(address, DRAINING);
                    }
                    return Ok(answer);
                }
                Err(Failure::Connect(error)) => {
                    replicas.set_aside(address, REFUSED);
                    refused = Failure::Connect(error);
                }
                Err(Failure::Broken(error)) if self.is_repeatable && !is_repeated => {
                    is_repeated = true;
                    refused = Failure::Broken(error);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(refused)
    }

    async fn attempt(
        &self,
        client: &reqwest::Client,
        address: SocketAddr,
        limits: UpstreamLimits,
        drain: &Drain,
    ) -> Result<Response, Failure> {
        let Ok(url) = Url::parse(&format!("http://{address}{}", self.target)) else { return Err(Failure::NoAddress) };
        let (body, length) = self.upload.body();
        let mut request = reqwest::Request::new(self.method.clone(), url);
        *request.headers_mut() = self.headers.clone();
        if let Some(length) = length {
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        if !self.upload.is_empty() {
            *request.body_mut() = Some(body);
        }
        let answered = self.in_time(client.execute(request), limits);
        let answered = if self.is_long_poll {
            let stopping = async {
                drain.closing().await;
                tokio::time::sleep(LAST_ANSWERS).await;
            };
            tokio::select! {
                answered = answered => answered,
                () = stopping => return Err(Failure::Draining),
            }
        } else {
            answered.await
        };
        answered.ok_or(Failure::Timeout)?.map_err(|error| match self.upload.take_failure() {
            Some(failure) => Failure::Client(failure),
            None if error.is_connect() => Failure::Connect(error),
            None => Failure::Broken(error),
        })
    }

    /// Waits for the head of the answer while only the service is waited for.
    async fn in_time(
        &self,
        answer: impl Future<Output = reqwest::Result<Response>>,
        limits: UpstreamLimits,
    ) -> Option<reqwest::Result<Response>> {
        let timeout = if self.is_long_poll { limits.long_poll } else { limits.ordinary };
        let Some(mut waits_for_client) = self.upload.waits_for_client() else {
            return tokio::time::timeout(timeout, answer).await.ok();
        };
        let mut answer = std::pin::pin!(answer);
        let mut is_uploading = true;
        loop {
            let is_clients_turn = is_uploading && *waits_for_client.borrow_and_update();
            tokio::select! {
                answered = &mut answer => return Some(answered),
                changed = waits_for_client.changed(), if is_uploading => is_uploading = changed.is_ok(),
                () = tokio::time::sleep(timeout), if !is_clients_turn => return None,
            }
        }
    }
}
