//! The body of a request on its way to a service.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ensemble_chassis::http::BoundedBody;
use ensemble_chassis::shares::Share;
use ensemble_types::problem::Problem;
use futures_util::{TryStreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::{mpsc, watch};

use super::failure::Failure;
use crate::limits::LimitKey;

/// A body up to this announced length is read before it is sent, so that a service sees no half of it.
const SMALL: usize = 64 * 1024;
/// Pieces between the client's connection and the service's. actix reads up to 128 KiB into one.
const PIECES: usize = 1;

/// The body of one try.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyEnded>;

/// A request body that can be offered to several addresses until one of them takes it.
pub(crate) enum Upload {
    Empty,
    Whole(Bytes),
    /// A body that passes through.
    Streamed {
        pieces: Arc<Mutex<mpsc::Receiver<Result<Bytes, BodyEnded>>>>,
        reading: watch::Receiver<()>,
    },
}

/// The client's body ended early, so that the service must not take it for a whole one.
#[derive(Debug, thiserror::Error)]
#[error("the client's body ended early: {}", .0.detail)]
pub(crate) struct BodyEnded(pub(crate) Problem);

impl Upload {
    /// Reads a small body, and begins to pass on a large one, for which `place` gives a place or the reason why not.
    pub(crate) async fn begin(
        body: BoundedBody,
        has_body: bool,
        place: impl FnOnce() -> Result<Share<LimitKey>, Problem>,
    ) -> Result<Self, Failure> {
        match body.announced() {
            _ if !has_body => Ok(Self::Empty),
            Some(length) if length <= SMALL => Ok(Self::Whole(body.read().await?)),
            _ => Ok(Self::stream(body, place().map_err(Failure::Client)?)),
        }
    }

    /// actix's payload belongs to its thread and the client wants one that does not, so a task of this thread moves it
    /// piece by piece.
    fn stream(mut body: BoundedBody, place: Share<LimitKey>) -> Self {
        let (sender, pieces) = mpsc::channel(PIECES);
        let (is_reading, reading) = watch::channel(());
        actix_web::rt::spawn(async move {
            let _is_reading = (is_reading, place);
            // The service may answer before the body has ended; then nothing reads the rest.
            while let Ok(room) = sender.reserve().await
                && let Some(piece) = body.next().await
            {
                let is_last = piece.is_err();
                room.send(piece.map_err(|error| BodyEnded(error.into())));
                if is_last {
                    return;
                }
            }
        });
        Self::Streamed { pieces: Arc::new(Mutex::new(pieces)), reading }
    }

    /// The body for one try. A connection that is refused reads none of it, so the next address gets all of it.
    pub(crate) fn body(&self) -> Body {
        match self {
            Self::Empty => whole(Bytes::new()),
            Self::Whole(bytes) => whole(bytes.clone()),
            Self::Streamed { pieces, .. } => {
                let pieces = Arc::clone(pieces);
                let pieces = stream::poll_fn(move |context| {
                    pieces.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(context)
                });
                StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
            }
        }
    }

    /// Waits until all of the body has come from the client.
    pub(crate) async fn has_come(&self) {
        if let Self::Streamed { reading, .. } = self {
            // The task that reads the body never sends anything; the channel closes when it ends.
            let _ = reading.clone().changed().await;
        }
    }
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
