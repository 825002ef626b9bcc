//! Large answers: counted for the same budget as request bodies until their reader has taken them, and sent in pieces.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, dev::Payload};
use bytes::Bytes;
use ensemble_types::problem::{Code, Problem};

use super::ApiError;
use super::body::Held;
use super::budget::{BodyBudget, FREE, Reservation, Sender};
use super::turns::{Turn, Turns};

/// The server copies each piece before it writes it.
const PIECE: usize = 32 << 10;

/// Requests whose answers may be large that are worked on at once, of one caller and of all. Each holds a database
/// connection for a while, and then a thread that serves.
const AT_ONCE: usize = 2;
const ALL_AT_ONCE: usize = 8;

/// In which order large answers are made, shared by all requests of a service.
#[derive(Clone, Debug)]
pub(crate) struct LargeAnswers(Turns);

/// An argument of handlers that wait first and then read much. The others have it in their row of the route table.
pub struct LargeAnswer(HttpRequest);

/// The turn of a request whose answer may be large. It ends when this is dropped.
#[must_use]
pub struct Making(#[expect(dead_code, reason = "it ends the turn when it is dropped")] Option<Turn>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Turns::new(AT_ONCE, ALL_AT_ONCE))
    }
}

impl LargeAnswer {
    pub(crate) fn of(request: &HttpRequest) -> Self {
        Self(request.clone())
    }

    /// Waits until it is the caller's turn.
    ///
    /// # Errors
    /// 503 when the caller has not read enough of its earlier answers, or when it was not its turn in time.
    pub async fn turn(&self) -> Result<Making, Problem> {
        let Some(answers) = self.0.app_data::<LargeAnswers>() else { return Ok(Making(None)) };
        let turn = answers.0.take(Sender::of(&self.0)).await?;
        if let Some(budget) = self.0.app_data::<BodyBudget>() {
            reserve(budget, &self.0, FREE + 1)?;
        }
        Ok(Making(Some(turn)))
    }
}

impl FromRequest for LargeAnswer {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self::of(request)))
    }
}

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
