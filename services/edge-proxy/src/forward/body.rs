//! The body of a service's answer on its way to the client.

use std::io;
use std::time::Duration;

use actix_web::body::{BodyStream, BoxBody, SizedStream};
use bytes::Bytes;
use ensemble_chassis::Drain;
use futures_util::stream::{self, StreamExt};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::limits::LimitKey;
use ensemble_chassis::shares::Share;

/// Makes a reader of Server-Sent Events come back, to another replica.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

/// What ends a body before the service does.
pub(super) enum End {
    /// An answer whose length is known: the service has no reason to pause within it for `limit`.
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
}

impl Live {
    /// Events end between two of them with a hint to come back. Text, which has no place for one, ends at once; its reader
    /// asks whether there is more in any case.
    pub(super) fn new(is_events: bool, drain: Drain) -> Self {
        Self { is_events, drain, tail: *b"\n\n" }
    }

    async fn next(&mut self, answer: &mut Incoming) -> hyper::Result<Option<Bytes>> {
        let may_end = !self.is_events || self.tail == *b"\n\n";
        tokio::select! {
            biased;
            // The hint goes out once; after it the body ends as text does.
            () = self.drain.closing(), if may_end => {
                Ok(std::mem::take(&mut self.is_events).then(|| Bytes::from_static(COME_BACK)))
            }
            piece = chunk(answer) => {
                let piece = piece?;
                for byte in piece.iter().flat_map(|bytes| bytes.iter().skip(bytes.len().saturating_sub(2))) {
                    self.tail = [self.tail[1], *byte];
                }
                Ok(piece)
            }
        }
    }
}

/// The next piece of an answer. Trailers are left out.
async fn chunk(answer: &mut Incoming) -> hyper::Result<Option<Bytes>> {
    while let Some(frame) = answer.frame().await {
        if let Ok(piece) = frame?.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// A body that passes through piece by piece. An error cuts the client's connection, so that an answer that broke off does
/// not look complete; dropping it closes the service's. `permit` is held until the end: it counts a long answer.
pub(super) fn relay(answer: Incoming, end: End, permit: Option<Share<LimitKey>>) -> BoxBody {
    let length = if let End::Stall { length, .. } = end { Some(length) } else { None };
    let pieces = stream::try_unfold((answer, end, permit), |(mut answer, mut end, permit)| async move {
        let piece = match &mut end {
            End::Live(live) => live.next(&mut answer).await,
            End::Service => chunk(&mut answer).await,
            End::Stall { limit, .. } => timeout(*limit, chunk(&mut answer)).await?,
        };
        Ok::<_, io::Error>(piece.map_err(io::Error::other)?.map(|piece| (piece, (answer, end, permit))))
    });
    match length {
        Some(length) => BoxBody::new(SizedStream::new(length, pieces.boxed_local())),
        None => BoxBody::new(BodyStream::new(pieces.boxed_local())),
    }
}
