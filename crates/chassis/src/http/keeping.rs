//! The body of an answer, with something that must not be dropped before the answer is written.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

pin_project_lite::pin_project! {
    /// A body that keeps a value until its last byte is written.
    pub(crate) struct Keeping<B, K> {
        #[pin]
        body: B,
        kept: K,
    }
}

impl<B, K> Keeping<B, K> {
    pub(crate) fn new(body: B, kept: K) -> Self {
        Self { body, kept }
    }
}

impl<B: MessageBody, K> MessageBody for Keeping<B, K> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        self.project().body.poll_next(cx)
    }

    fn try_into_bytes(self) -> Result<Bytes, Self> {
        let Self { body, kept } = self;
        body.try_into_bytes().map_err(|body| Self { body, kept })
    }
}
