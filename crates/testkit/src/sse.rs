//! Reads Server-Sent Events as they arrive.

use std::time::Duration;

use reqwest::RequestBuilder;

use crate::SOON;
use crate::document::Asked;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
    /// When a reader should connect again, in milliseconds.
    pub retry: Option<String>,
}

/// An open stream.
pub struct Events {
    asked: Asked,
    response: reqwest::Response,
    buffer: String,
    pub status: u16,
}

impl Events {
    pub async fn open(request: RequestBuilder) -> Self {
        Self::opened(request).await.unwrap_or_else(|error| panic!("no stream: {error:?}"))
    }

    /// The same. `None` when no connection can be made.
    pub async fn try_open(request: RequestBuilder) -> Option<Self> {
        Self::opened(request).await.ok()
    }

    async fn opened(request: RequestBuilder) -> reqwest::Result<Self> {
        let (http, request) = request.header("Accept", "text/event-stream").build_split();
        let request = request?;
        let asked = Asked::new(&request);
        let response = http.execute(request).await?;
        let status = response.status().as_u16();
        Ok(Self { asked, response, buffer: String::new(), status })
    }

    /// The next event within `timeout`, without comments. `None` at the end of the stream.
    pub async fn next_within(&mut self, timeout: Duration) -> Result<Option<SseEvent>, &'static str> {
        tokio::time::timeout(timeout, self.next()).await.map_err(|_| "no event in time")
    }

    /// The next event. Panics when none arrives within a minute or the stream has ended.
    pub async fn expect(&mut self) -> SseEvent {
        match self.next_within(SOON).await {
            Ok(Some(event)) => event,
            other => panic!("an event was expected: {other:?}"),
        }
    }

    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let frame: String = self.buffer.drain(..end + 2).collect();
                let event = read(&frame);
                if !event.name.is_empty() || !event.data.is_empty() {
                    self.asked.check_event(&event.data);
                    return Some(event);
                }
            }
            let chunk = self.response.chunk().await.ok()??;
            self.buffer.push_str(&String::from_utf8_lossy(&chunk));
        }
    }
}

fn read(frame: &str) -> SseEvent {
    let mut event = SseEvent::default();
    for line in frame.lines() {
        match line.split_once(": ") {
            Some(("id", value)) => event.id = Some(value.to_owned()),
            Some(("event", value)) => value.clone_into(&mut event.name),
            Some(("retry", value)) => event.retry = Some(value.to_owned()),
            Some(("data", value)) => event.data.push_str(value),
            _ => {}
        }
    }
    event
}
