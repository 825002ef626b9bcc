//! The output of an attempt: read once, or followed live.

use bytes::Bytes;
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::problem::Code;
use ensemble_types::runs::{Pend, Run, Task};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use reqwest::header;

use crate::error::{Error, Result};
use crate::follow::Way;
use crate::retry::{self, Repeat};
use crate::transport::Client;

/// Selects the output of one attempt.
#[derive(Clone, Copy, Debug)]
pub struct OutputOf {
    pub run: RunId,
    pub task: TaskId,
    /// The latest attempt when absent.
    pub attempt: Option<u32>,
    /// Skip this many bytes.
    pub from: u64,
}

impl Client {
    /// The output that exists now, as a stream of chunks.
    pub async fn output(&self, of: OutputOf) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<>> {
        let origin = self.origin().to_owned();
        let body = self.open_output(of, false).await?;
        Ok(body.map(move |chunk| chunk.map_err(|error| Error::of(&origin, error))))
    }

    /// The output from `of.from` on, live, until the attempt has ended. Resumes when the connection breaks.
    pub fn follow_output(&self, of: OutputOf) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        let start = Following { client: self.clone(), of, body: None, last: false, failures: 0 };
        stream::try_unfold(
            start,
            |mut following| async move { Ok(following.next().await?.map(|chunk| (chunk, following))) },
        )
    }

    async fn open_output(&self, of: OutputOf, live: bool) -> Result<BoxStream<'static, reqwest::Result<Bytes>>> {
        let path = ["v1", "orchestrator", "runs", &of.run.to_string(), "tasks", &of.task.to_string(), "output"];
        let way = self.0.streams.way();
        // Where streams are held back, what there is by now comes, again and again.
        let live = live && way != Way::Poll;
        let call = match way {
            Way::Post if live => self.post(&path, Repeat::Harmless),
            _ => self.get(&path),
        };
        let mut call = call.query("attempt", of.attempt).query("follow", live.then_some(true));
        if of.from > 0 {
            call = call.header(header::RANGE, Some(&format!("bytes={}-", of.from)));
        }
        match call.send_open().await {
            Ok(response) => Ok(response.bytes_stream().boxed()),
            // All available output has been read.
            Err(error) if error.is(Code::RangeNotSatisfiable) => Ok(stream::empty().boxed()),
            Err(error) => Err(error),
        }
    }
}

struct Following {
    client: Client,
    of: OutputOf,
    body: Option<BoxStream<'static, reqwest::Result<Bytes>>>,
    /// The attempt has ended. `body` is the rest of its output.
    last: bool,
    failures: u32,
}

impl Following {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.body.is_none() {
                self.pin().await?;
                self.body = Some(self.client.open_output(self.of, !self.last).await?);
            }
            let Some(body) = self.body.as_mut() else { return Ok(None) };
            match body.next().await {
                Some(Ok(chunk)) => {
                    self.failures = 0;
                    self.of.from += u64::try_from(chunk.len()).unwrap_or_default();
                    return Ok(Some(chunk));
                }
                None if self.last => return Ok(None),
                None if is_over(&self.client, self.of).await? => {
                    self.last = true;
                    self.body = None;
                    continue;
                }
                Some(Err(error)) => {
                    let error = Error::of(self.client.origin(), error);
                    let spent = self.failures >= self.client.0.retry.attempts;
                    if spent || retry::again(&error, Repeat::Harmless).is_none() {
                        return Err(error);
                    }
                }
                None => {}
            }
            // The connection broke, or the service is shutting down.
            self.body = None;
            self.failures += 1;
            let pause = match self.client.0.streams.way() {
                Way::Poll => self.client.0.polls.seen,
                _ => self.client.0.retry.pause(self.failures, None),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Stays with one attempt, because offsets mean nothing in another. Waits for the first attempt if there is none
    /// yet.
    async fn pin(&mut self) -> Result<()> {
        while self.of.attempt.is_none() {
            let run = self.client.run(self.of.run).await?;
            let cursor = Some(run.version.to_string());
            let Some(task) = find(self.of.task, run) else { return Ok(()) };
            if task.attempt > 0 {
                self.of.attempt = Some(task.attempt);
            } else if task.status.is_terminal() {
                return Ok(());
            } else {
                self.client.pend(self.of.run, &Pend { cursor, ..Pend::default() }).await?;
            }
        }
        Ok(())
    }
}

/// Whether this attempt's output is complete.
async fn is_over(client: &Client, of: OutputOf) -> Result<bool> {
    let task = find(of.task, client.run(of.run).await?);
    Ok(task.is_none_or(|task| task.status.is_terminal() || of.attempt.is_some_and(|attempt| attempt < task.attempt)))
}

fn find(id: TaskId, run: Run) -> Option<Task> {
    run.tasks.unwrap_or_default().into_iter().find(|task| task.id == id)
}
