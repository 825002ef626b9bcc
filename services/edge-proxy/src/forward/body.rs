//! The body of a service's answer on its way to the client.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use ensemble_chassis::Drain;
use futures_util::stream::BoxStream;
use tokio::time::{Sleep, sleep};

use crate::streams::StreamPermit;

/// Makes a reader of Server-Sent Events come back, to another replica.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

/// A body that passes through piece by piece. An error cuts the client's connection, so that an answer that broke off does
/// not look complete; dropping it closes the service's.
pub(super) struct RelayedBody {
    pieces: BoxStream<'static, reqwest::Result<Bytes>>,
    size: BodySize,
    stall: Option<Stall>,
    live: Option<Live>,
    _permit: Option<StreamPermit>,
}

/// How long a service may stop within an answer of known length.
struct Stall {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

/// An answer without an end in sight, which the drain ends.
pub(super) struct Live {
    is_events: bool,
    closing: Pin<Box<dyn Future<Output = ()>>>,
    is_closing: bool,
    /// The last bytes that went out; an event ends with an empty line.
    tail: [u8; 2],
    is_over: bool,
}

impl Live {
    /// Events end between two of them with a hint to come back. Text, which has no place for one, ends at once; its reader
    /// asks whether there is more in any case.
    pub(super) fn new(is_events: bool, drain: Drain) -> Self {
        let closing = Box::pin(async move { drain.closing().await });
        Self { is_events, closing, is_closing: false, tail: *b"\n\n", is_over: false }
    }

    /// What to send instead of the next piece: nothing special, the last bytes, or the end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<Option<Bytes>> {
        if self.is_over {
            return Some(None);
        }
        self.is_closing = self.is_closing || self.closing.as_mut().poll(cx).is_ready();
        if !self.is_closing || (self.is_events && self.tail != *b"\n\n") {
            return None;
        }
        self.is_over = true;
        Some(self.is_events.then(|| Bytes::from_static(COME_BACK)))
    }

    fn sent(&mut self, bytes: &Bytes) {
        for byte in bytes.iter().skip(bytes.len().saturating_sub(2)) {
            self.tail = [self.tail[1], *byte];
        }
    }
}

impl RelayedBody {
    pub(super) fn new(
        pieces: BoxStream<'static, reqwest::Result<Bytes>>,
        length: Option<u64>,
        stall: Duration,
        live: Option<Live>,
        permit: Option<StreamPermit>,
    ) -> Self {
        // A service that says how long its answer is has no reason to stop within it; a stream may be silent.
        let stall = length.map(|_| Stall { limit: stall, timer: None });
        Self { pieces, size: length.map_or(BodySize::Stream, BodySize::Sized), stall, live, _permit: permit }
    }
}

impl MessageBody for RelayedBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if let Some(last) = this.live.as_mut().and_then(|live| live.poll_end(cx)) {
            return Poll::Ready(last.map(Ok));
        }
        if let Poll::Ready(piece) = this.pieces.as_mut().poll_next(cx) {
            if let Some(stall) = &mut this.stall {
                stall.timer = None;
            }
            if let (Some(live), Some(Ok(bytes))) = (&mut this.live, &piece) {
                live.sent(bytes);
            }
            return Poll::Ready(piece.map(|piece| piece.map_err(Into::into)));
        }
        let Some(stall) = &mut this.stall else { return Poll::Pending };
        let timer = stall.timer.get_or_insert_with(|| Box::pin(sleep(stall.limit)));
        ready!(timer.as_mut().poll(cx));
        let error = io::Error::new(io::ErrorKind::TimedOut, "the service stopped in the middle of its answer");
        Poll::Ready(Some(Err(error.into())))
    }
}
