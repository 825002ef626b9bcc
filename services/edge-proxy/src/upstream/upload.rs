//! The body of a request on its way to a service.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ensemble_chassis::http::{BodyError, BoundedBody};
use futures_util::{StreamExt, stream};
use tokio::sync::{mpsc, watch};

/// A body up to this announced length is read before it is sent, so that a service sees no half of it.
const SMALL: usize = 64 * 1024;
/// Pieces between the client's connection and the service's.
const PIECES: usize = 2;

/// A request body that can be offered to several addresses until one of them takes it.
pub(crate) enum Upload {
    Empty,
    Whole(Bytes),
    Streamed(Streamed),
}

/// A body that passes through. actix's payload belongs to its thread and the client wants one that does not, so a task of
/// this thread moves it piece by piece.
pub(crate) struct Streamed {
    pieces: Arc<Mutex<Option<Pieces>>>,
    length: Option<usize>,
    /// Whether the client is waited for now; a service's time counts only when it is not.
    waits_for_client: watch::Receiver<bool>,
    failure: Rc<RefCell<Option<BodyError>>>,
}

type Pieces = mpsc::Receiver<Result<Bytes, BodyEnded>>;

/// The client's body ended early, so that the service must not take it for a whole one.
#[derive(Debug, thiserror::Error)]
#[error("the client's body ended early")]
struct BodyEnded;

impl Upload {
    /// Reads a small body, and begins to pass on a large one.
    pub(crate) async fn begin(body: BoundedBody, has_body: bool) -> Result<Self, BodyError> {
        match body.announced() {
            _ if !has_body => Ok(Self::Empty),
            Some(length) if length <= SMALL => Ok(Self::Whole(body.read().await?)),
            length => Ok(Self::Streamed(Streamed::begin(body, length))),
        }
    }

    /// The body for one try, and its length where only the client knows it.
    pub(crate) fn body(&self) -> (reqwest::Body, Option<usize>) {
        match self {
            Self::Empty => (reqwest::Body::default(), None),
            Self::Whole(bytes) => (bytes.clone().into(), None),
            Self::Streamed(streamed) => (streamed.body(), streamed.length),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Whether the client is waited for, where that changes.
    pub(crate) fn waits_for_client(&self) -> Option<watch::Receiver<bool>> {
        match self {
            Self::Streamed(streamed) => Some(streamed.waits_for_client.clone()),
            _ => None,
        }
    }

    /// What the client did wrong, if anything.
    pub(crate) fn take_failure(&self) -> Option<BodyError> {
        match self {
            Self::Streamed(streamed) => streamed.failure.borrow_mut().take(),
            _ => None,
        }
    }
}

impl Streamed {
    fn begin(mut body: BoundedBody, length: Option<usize>) -> Self {
        let (sender, pieces) = mpsc::channel(PIECES);
        let (waits, waits_for_client) = watch::channel(true);
        let failure = Rc::new(RefCell::new(None));
        let failed = Rc::clone(&failure);
        actix_web::rt::spawn(async move {
            while let Some(piece) = body.next().await {
                waits.send_replace(false);
                let piece = piece.map_err(|error| {
                    *failed.borrow_mut() = Some(error);
                    BodyEnded
                });
                let is_last = piece.is_err();
                // The service may answer before the body has ended; then nothing reads the rest.
                if sender.send(piece).await.is_err() || is_last {
                    return;
                }
                waits.send_replace(true);
            }
            waits.send_replace(false);
        });
        Self { pieces: Arc::new(Mutex::new(Some(pieces))), length, waits_for_client, failure }
    }

    /// Takes the pieces when it is read for the first time: a connection that is refused never reads it.
    fn body(&self) -> reqwest::Body {
        let pieces = Arc::clone(&self.pieces);
        let taken = stream::once(async move {
            let pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner).take();
            stream::unfold(pieces, |pieces| async move {
                let mut pieces = pieces?;
                Some((pieces.recv().await?, Some(pieces)))
            })
        });
        reqwest::Body::wrap_stream(taken.flatten())
    }
}
