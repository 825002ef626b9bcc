//! The orderly end: a service is told to stop while clients are at it and people wait in it, and nobody must notice more
//! than a refused connection. It is told by either signal, which must mean the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::town::Town;

/// Answers before the signal, and again after the new start.
const ENOUGH: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(60);
/// `DRAIN_GRACE_MS` is 25 s; whatever ends by being cut off takes longer than this.
const IN_ORDER: Duration = Duration::from_secs(10);

/// What is asked of a service while it goes.
pub(crate) struct Visit {
    pub(crate) service: usize,
    pub(crate) token: String,
    /// Answered 200 at once.
    pub(crate) path: String,
    /// Answers that stay open, and how they end.
    pub(crate) waits: Vec<(String, Ending)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A stream of events: its last words say when to come back.
    Hint,
    /// A long-poll: its present state, or from the edge, which does not know it, when to ask again.
    Answer,
    /// Text: no more of it, and no broken connection.
    End,
}

#[derive(Clone)]
struct Asker {
    url: String,
    token: String,
    answered: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

impl Town {
    /// One service ends by a signal and is started again; what was not as it should be.
    pub(crate) async fn drain(&mut self, visit: &Visit, signal: Signal) -> Result<Vec<String>> {
        let service = self.services.get_mut(visit.service).context("no such service")?;
        let what = format!("{} told by {signal}", service.name);
        let (stop, stopping) = watch::channel(false);
        let answered = Arc::new(AtomicUsize::new(0));
        let url = format!("{}{}", service.url(), visit.path);
        let asker = Asker { url, token: visit.token.clone(), answered: Arc::clone(&answered), stop: stopping };
        // Some keep their connections, as browsers and services do, and some come with a new one each time.
        let askers: Vec<_> = (0..12).map(|n| tokio::spawn(asker.clone().ask(n < 8))).collect();
        let mut waiting: Vec<(Ending, JoinHandle<Result<()>>)> = Vec::new();
        let opened = Arc::new(AtomicUsize::new(0));
        for (path, ending) in &visit.waits {
            let call = reqwest::Client::builder().no_proxy().build()?.get(format!("{}{path}", service.url()));
            let waiter = wait(call.bearer_auth(&visit.token), *ending, Arc::clone(&opened));
            waiting.push((*ending, tokio::spawn(waiter)));
        }
        until("clients are answered", || {
            answered.load(Ordering::SeqCst) >= ENOUGH && opened.load(Ordering::SeqCst) >= visit.waits.len()
        })
        .await?;

        let (status, took) = service.end_with(signal, TIMEOUT).await?;
        let mut faults = Vec::new();
        if !status.success() || took > IN_ORDER {
            faults.push(format!("drain: {what} ended with {status} after {took:?}"));
        }
        for (ending, waiter) in waiting {
            if let Err(why) = waiter.await? {
                faults.push(format!("drain: {what}: {ending:?}: {why:#}"));
            }
        }
        service.spawn()?;
        service.ready(&self.http, TIMEOUT).await?;
        let before = answered.load(Ordering::SeqCst);
        until("clients are answered again", || answered.load(Ordering::SeqCst) >= before + ENOUGH).await?;
        stop.send_replace(true);
        for asker in askers {
            faults.extend(asker.await?.into_iter().take(3).map(|why| format!("drain: {what}: {why}")));
        }
        Ok(faults)
    }
}

impl Asker {
    /// Asks one question after the other; tries again when a connection is refused, and nothing else may happen.
    async fn ask(self, keeps: bool) -> Vec<String> {
        let idle = if keeps { 1 } else { 0 };
        let Ok(http) = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(idle).build() else {
            return vec!["no client could be made".to_owned()];
        };
        let mut faults = Vec::new();
        while !*self.stop.borrow() {
            let asked = http.get(&self.url).bearer_auth(&self.token).timeout(TIMEOUT).send().await;
            let answer = match asked {
                Err(error) if error.is_connect() => {
                    sleep(Duration::from_millis(5)).await;
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
                Ok(status) => faults.push(format!("a request was answered {status}")),
                Err(error) => faults.push(format!("a request failed (kept connection: {keeps}): {error:?}")),
            }
        }
        faults
    }
}

/// Waits in the service until it goes.
async fn wait(call: reqwest::RequestBuilder, ending: Ending, opened: Arc<AtomicUsize>) -> Result<()> {
    if ending == Ending::Answer {
        // It says nothing until the end, so that it has arrived can only be assumed by then.
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
    let begun = Instant::now();
    while !holds() {
        ensure!(begun.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
