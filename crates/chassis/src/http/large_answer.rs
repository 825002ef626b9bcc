//! Large answers: counted for the same budget as request bodies until their reader has taken them, and sent in pieces.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use bytes::Bytes;
use ensemble_types::problem::{Code, Problem};

use super::body::Held;
use super::budget::{BodyBudget, FREE, Reservation, Sender};

/// The server copies each piece before it writes it.
const PIECE: usize = 32 << 10;

/// Counts an answer that is longer than [`FREE`].
///
/// # Errors
/// 503 when its caller has too many of them open already. An answer to a request with a body is not refused, because
/// its work is done; it counts as far as there is room.
pub(crate) fn count(request: &HttpRequest, response: HttpResponse) -> Result<HttpResponse, Problem> {
    let length = match response.body().size() {
        BodySize::Sized(length) => usize::try_from(length).unwrap_or(usize::MAX),
        _ => return Ok(response),
    };
    if length <= FREE {
        return Ok(response);
    }
    let (response, body) = response.into_parts();
    let bytes = match body.try_into_bytes() {
        Ok(bytes) => bytes,
        Err(body) => return Ok(response.set_body(body)),
    };
    let of_body = request.extensions_mut().remove::<Held>().map(|held| held.0);
    let reservation = match of_body {
        None => request.app_data::<BodyBudget>().map(|budget| reserve(budget, request, length)).transpose()?,
        Some(mut of_body) => {
            let _ = of_body.grow(length);
            Some(of_body)
        }
    };
    Ok(response.set_body(BoxBody::new(Pieces { rest: bytes, _reservation: reservation })))
}

fn reserve(budget: &BodyBudget, request: &HttpRequest, length: usize) -> Result<Reservation, Problem> {
    let mut reservation = budget.reserve(Sender::of(request));
    reservation.grow(length).map_err(|_| {
        let detail =
            "The service holds as many large answers as it may, in all or for you. Read them faster, or ask for less.";
        Problem::new(Code::Unavailable, detail).with_retry_after(2)
    })?;
    Ok(reservation)
}

struct Pieces {
    rest: Bytes,
    _reservation: Option<Reservation>,
}

impl MessageBody for Pieces {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let length = self.rest.len().min(PIECE);
        Poll::Ready((length > 0).then(|| Ok(self.rest.split_to(length))))
    }
}
