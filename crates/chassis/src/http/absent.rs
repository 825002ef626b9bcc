//! The body of an answer to HEAD.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;

/// A body that has the size that the answer to GET would have, and no bytes. The server would otherwise poll the real body
/// to its end although it sends none of it, and a stream has no end: nothing else would be answered on the connection.
pub fn absent(size: BodySize) -> BoxBody {
    BoxBody::new(Absent(size))
}

struct Absent(BodySize);

impl MessageBody for Absent {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        match self.0 {
            BodySize::Stream => BodySize::None,
            size => size,
        }
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(None)
    }
}
