//! The body of a service's answer on its way to the client.

use std::io;
use std::time::Duration;

use actix_web::body::{BodyStream, BoxBody, SizedStream};
use bytes::Bytes;
use ensemble_chassis::Drain;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::timeout;

use crate::limits::LimitKey;
use crate::shares::Share;

/// Makes a reader of Server-Sent Events come back, to another replica.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

/// A body that passes through piece by piece. An error cuts the client's connection, so that an answer that broke off does
/// not look complete; dropping it closes the service's.
pub(super) struct Relayed {
    pub(super) pieces: BoxStream<'static, reqwest::Result<Bytes>>,
    pub(super) end: End,
}

/// What ends a body before the service does.
pub(super) enum End {
    /// An answer whose length is known: the service has no reason to stop within it for so long.
    Stall { length: u64, limit: Duration },
    /// An answer of unknown length that will come to its end.
    Service,
    /// An answer without an end in sight: the drain ends it.
    Live(Live),
}

pub(super) struct Live {
    is_events: bool,
    drain: Drain,
    /// The last bytes that went out; an event ends with an empty line.
    tail: [u8; 2],
    is_over: bool,
}

impl Live {
    /// Events end between two of them with a hint to come back. Text, which has no place for one, ends at once; its reader
    /// asks whether there is more in any case.
    pub(super) fn new(is_events: bool, drain: Drain) -> Self {
        Self { is_events, drain, tail: *b"\n\n", is_over: false }
    }

    async fn next(&mut self, pieces: &mut BoxStream<'static, reqwest::Result<Bytes>>) -> Option<io::Result<Bytes>> {
        if self.is_over {
            return None;
        }
        let may_end = !self.is_events || self.tail == *b"\n\n";
        tokio::select! {
            biased;
            () = self.drain.closing(), if may_end => {
                self.is_over = true;
                self.is_events.then(|| Ok(Bytes::from_static(COME_BACK)))
            }
            piece = pieces.next() => {
                let piece = piece?.map_err(io::Error::other);
                if let Ok(bytes) = &piece {
                    for byte in bytes.iter().skip(bytes.len().saturating_sub(2)) {
                        self.tail = [self.tail[1], *byte];
                    }
                }
                Some(piece)
            }
        }
    }
}

impl Relayed {
    /// `permit` is held until the body has ended: it counts a long answer.
    pub(super) fn into_body(self, permit: Option<Share<LimitKey>>) -> BoxBody {
        let length = if let End::Stall { length, .. } = self.end { Some(length) } else { None };
        let pieces = stream::unfold((self, permit), |(mut relayed, permit)| async move {
            Some((relayed.next().await?, (relayed, permit)))
        });
        match length {
            Some(length) => BoxBody::new(SizedStream::new(length, pieces.boxed_local())),
            None => BoxBody::new(BodyStream::new(pieces.boxed_local())),
        }
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match &mut self.end {
            End::Live(live) => live.next(&mut self.pieces).await,
            End::Service => Some(self.pieces.next().await?.map_err(io::Error::other)),
            End::Stall { limit, .. } => match timeout(*limit, self.pieces.next()).await {
                Ok(piece) => Some(piece?.map_err(io::Error::other)),
                Err(late) => Some(Err(late.into())),
            },
        }
    }
}
