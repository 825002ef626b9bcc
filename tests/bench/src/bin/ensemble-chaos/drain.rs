//! Orderly shutdown: a service is stopped while clients send requests and hold streams open. Clients may only notice
//! refused connections. SIGTERM and SIGINT must have the same effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ensemble_testkit::poll;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::stack::Stack;

/// The number of responses to wait for before the signal, and after the restart.
const ENOUGH_RESPONSES: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(60);
/// `DRAIN_GRACE_MS` is 25 s, so a shutdown that has to cut off requests takes longer than this.
const ORDERLY_STOP_LIMIT: Duration = Duration::from_secs(10);

/// The requests to one service during its shutdown.
pub(crate) struct DrainCase {
    pub(crate) service: usize,
    pub(crate) token: String,
    /// Must be answered with 200.
    pub(crate) path: String,
    /// Requests that stay open, and how they must end.
    pub(crate) waits: Vec<(String, Ending)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An event stream ends with a `retry` hint.
    Hint,
    /// A long-poll ends with the current state, or at the edge with `Retry-After`.
    Answer,
    /// A text stream ends without a broken connection.
    End,
}

#[derive(Clone)]
struct Requester {
    url: String,
    token: String,
    answered: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

impl Stack {
    /// Stops the service with this signal and starts it again. Returns the violations.
    pub(crate) async fn drain(&mut self, case: &DrainCase, signal: Signal) -> Result<Vec<String>> {
        let service = self.services.get_mut(case.service).context("no such service")?;
        let what = format!("{} stopped by {signal}", service.name);
        let (stop, stopping) = watch::channel(false);
        let answered = Arc::new(AtomicUsize::new(0));
        let url = format!("{}{}", service.url(), case.path);
        let requester = Requester { url, token: case.token.clone(), answered: Arc::clone(&answered), stop: stopping };
        // Some clients reuse connections, as browsers and services do. The others open a new one for each request.
        let requesters: Vec<_> = (0..12).map(|n| tokio::spawn(requester.clone().ask(n < 8))).collect();
        let mut waiting: Vec<(Ending, JoinHandle<Result<()>>)> = Vec::new();
        let opened = Arc::new(AtomicUsize::new(0));
        for (path, ending) in &case.waits {
            let call = reqwest::Client::builder().no_proxy().build()?.get(format!("{}{path}", service.url()));
            let waiter = wait(call.bearer_auth(&case.token), *ending, Arc::clone(&opened));
            waiting.push((*ending, tokio::spawn(waiter)));
        }
        until("clients are answered", || {
            answered.load(Ordering::SeqCst) >= ENOUGH_RESPONSES && opened.load(Ordering::SeqCst) >= case.waits.len()
        })
        .await?;

        let (status, took) = service.end_with(signal, TIMEOUT).await?;
        let mut violations = Vec::new();
        if !status.success() || took > ORDERLY_STOP_LIMIT {
            violations.push(format!("drain: {what} ended with {status} after {took:?}"));
        }
        for (ending, waiter) in waiting {
            if let Err(why) = waiter.await? {
                violations.push(format!("drain: {what}: {ending:?}: {why:#}"));
            }
        }
        service.spawn()?;
        service.ready(&self.http, TIMEOUT).await?;
        let before = answered.load(Ordering::SeqCst);
        until("clients are answered again", || answered.load(Ordering::SeqCst) >= before + ENOUGH_RESPONSES).await?;
        stop.send_replace(true);
        for requester in requesters {
            violations.extend(requester.await?.into_iter().take(3).map(|why| format!("drain: {what}: {why}")));
        }
        Ok(violations)
    }
}

impl Requester {
    /// Sends requests one after the other. A refused connection is retried; any other failure is a violation.
    async fn ask(self, keeps: bool) -> Vec<String> {
        let idle = if keeps { 1 } else { 0 };
        let Ok(http) = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(idle).build() else {
            return vec!["no client could be made".to_owned()];
        };
        let mut violations = Vec::new();
        // A service that restarts refuses connections. One attempt every 5 ms keeps the processor free for its start.
        let mut pace = interval(Duration::from_millis(5));
        while !*self.stop.borrow() {
            let sent = http.get(&self.url).bearer_auth(&self.token).timeout(TIMEOUT).send().await;
            let answer = match sent {
                Err(error) if error.is_connect() => {
                    pace.tick().await;
                    continue;
                }
                Ok(answer) => {
                    let status = answer.status();
                    answer.bytes().await.map(|_| status)
                }
                Err(error) => Err(error),
            };
            match answer {
                Ok(StatusCode::OK) => {
                    self.answered.fetch_add(1, Ordering::SeqCst);
                }
                Ok(status) => violations.push(format!("a request was answered {status}")),
                Err(error) => violations.push(format!("a request failed (kept connection: {keeps}): {error:?}")),
            }
        }
        violations
    }
}

/// Holds a request open until the service stops.
async fn wait(call: reqwest::RequestBuilder, ending: Ending, opened: Arc<AtomicUsize>) -> Result<()> {
    if ending == Ending::Answer {
        // The service sends nothing until the end, so its arrival cannot be observed.
        opened.fetch_add(1, Ordering::SeqCst);
        let answer = call.timeout(TIMEOUT).send().await?;
        let (status, again) = (answer.status(), answer.headers().contains_key("retry-after"));
        answer.bytes().await?;
        ensure!(status == StatusCode::OK || (status == StatusCode::SERVICE_UNAVAILABLE && again), "answered {status}");
        return Ok(());
    }
    let mut answer = call.send().await?;
    ensure!(answer.status().is_success(), "answered {}", answer.status());
    opened.fetch_add(1, Ordering::SeqCst);
    let mut text = String::new();
    while let Some(chunk) = answer.chunk().await? {
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    ensure!(ending == Ending::End || text.contains("retry: "), "the last words were {text:?}");
    Ok(())
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let held = poll(TIMEOUT, async || holds().then_some(())).await;
    held.with_context(|| format!("not within {TIMEOUT:?}: {what}"))
}
