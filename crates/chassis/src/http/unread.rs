//! Ends the connection of a request that was answered before its chunked body had come to its end.
//!
//! actix reads such a body to its end otherwise, to use the connection again, and the body may have no end: each chunk costs
//! work, so a caller that was refused already could keep a thread busy. actix does so when the body's reader has been dropped
//! before the answer is written, so the reader is kept until then.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::HttpMessage;
use actix_web::body::MessageBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::header::TRANSFER_ENCODING;
use actix_web::middleware::Next;
use bytes::Bytes;
use futures_util::Stream;

use super::keeping::Keeping;

/// The reader of a request's body.
#[derive(Clone)]
pub(crate) struct Reader(Rc<RefCell<Payload>>);

impl Stream for Reader {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_next(cx)
    }
}

pub(crate) async fn close_unread<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<Keeping<B, Option<Reader>>>, actix_web::Error> {
    let reader = request.headers().contains_key(TRANSFER_ENCODING).then(|| {
        let reader = Reader(Rc::new(RefCell::new(request.take_payload())));
        request.set_payload(Payload::Stream { payload: Box::pin(reader.clone()) });
        reader
    });
    let response = next.call(request).await?;
    Ok(response.map_body(|_, body| Keeping::new(body, reader)))
}
