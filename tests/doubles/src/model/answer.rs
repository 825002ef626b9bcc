//! Converts the model's move into frames of an event stream, whole or cut at odd places.

use std::time::Duration;

use actix_web::HttpResponse;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

/// How the stream of frames ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The stream ends normally.
    Whole,
    /// The stream never ends.
    Hangs,
    /// The connection is closed in the middle of the body.
    Drops,
}

/// An answer whose frames are already text.
pub(crate) struct Answer {
    pub(crate) frames: Vec<String>,
    pub(crate) ending: Ending,
    pub(crate) split: bool,
}

impl Answer {
    pub(crate) fn respond(self) -> HttpResponse {
        HttpResponse::Ok()
            .content_type("text/event-stream")
            .insert_header(("Cache-Control", "no-cache"))
            .streaming(self.stream())
    }

    fn stream(self) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
        let split = self.split;
        let frames = stream::iter(self.frames).flat_map(move |frame| stream::iter(pieces(frame, split)));
        let paced = frames.then(move |piece| async move {
            if split {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            Ok(piece)
        });
        paced.chain(end(self.ending))
    }
}

fn end(ending: Ending) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::once(async move {
        match ending {
            Ending::Whole => None,
            Ending::Hangs => std::future::pending().await,
            Ending::Drops => {
                // Earlier frames must have been sent, or the reader sees no beginning of the answer.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Some(Err(std::io::Error::other("the stand-in drops this connection")))
            }
        }
    })
    .filter_map(std::future::ready)
}

fn pieces(frame: String, split: bool) -> Vec<Bytes> {
    let whole = Bytes::from(frame);
    if !split {
        return vec![whole];
    }
    (0..whole.len()).step_by(3).map(|from| whole.slice(from..(from + 3).min(whole.len()))).collect()
}
