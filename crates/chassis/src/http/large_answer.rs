//! Large answers: counted for the same budget as request bodies until their reader has taken them, and sent in pieces.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, dev::Payload};
use bytes::Bytes;
use ensemble_types::problem::{Code, Problem};
use serde::Serialize;

use super::ApiError;
use super::body::Held;
use super::budget::{BodyBudget, FREE, Reservation, Sender};
use super::etag;
use super::turns::{Turn, Turns};

/// The server copies each piece before it writes it, so pieces are short.
const PIECE: usize = 32 << 10;

/// Requests whose answers may be large that are worked on at once, of one caller and of all. Each holds a database
/// connection for a while, and then a thread that serves.
const AT_ONCE: usize = 1;
const ALL_AT_ONCE: usize = 8;

/// In which order large answers are made, shared by all requests of a service.
#[derive(Clone, Debug)]
pub(crate) struct LargeAnswers(Turns);

/// An argument of handlers that wait first and then read much. The others have it in their row of the route table.
pub struct LargeAnswer(HttpRequest);

/// The answer of a request, counted before it was made.
struct Announced {
    bytes: usize,
    reservation: Reservation,
}

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
        self.turn_for(0).await
    }

    /// Waits until it is the caller's turn, and counts an answer of this many bytes before it is made.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub async fn turn_for(&self, bytes: usize) -> Result<Making, Problem> {
        let Some(answers) = self.0.app_data::<LargeAnswers>() else { return Ok(Making(None)) };
        let turn = answers.0.take(Sender::of(&self.0)).await?;
        if let Some(budget) = self.0.app_data::<BodyBudget>() {
            let reservation = reserve(budget, &self.0, bytes.max(FREE + 1))?;
            if bytes > 0 {
                self.0.extensions_mut().insert(Announced { bytes, reservation });
            }
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

/// Counts an answer of this length, when it is longer than [`FREE`], until what this returns is dropped.
///
/// # Errors
/// 503 when its caller has too many of them open already. An answer to a request with a body is not refused, because
/// its work is done; it counts as far as there is room.
fn count(request: &HttpRequest, length: usize) -> Result<Option<Reservation>, Problem> {
    if length <= FREE {
        return Ok(None);
    }
    if let Some(Announced { bytes, mut reservation }) = request.extensions_mut().remove() {
        // JSON can be several times as long as the content that was announced.
        reservation.grow(length.saturating_sub(bytes)).map_err(|_| too_many())?;
        return Ok(Some(reservation));
    }
    let of_body = request.extensions_mut().remove::<Held>().map(|held| held.0);
    match of_body {
        None => request.app_data::<BodyBudget>().map(|budget| reserve(budget, request, length)).transpose(),
        Some(mut of_body) => {
            let _ = of_body.grow(length);
            Ok(Some(of_body))
        }
    }
}

/// Counts an answer that a handler made as one block, and sends it in pieces.
///
/// # Errors
/// As [`count`].
pub(crate) fn count_block(request: &HttpRequest, response: HttpResponse) -> Result<HttpResponse, Problem> {
    match response.body().size() {
        BodySize::Sized(length) if length > FREE as u64 => {}
        _ => return Ok(response),
    }
    let (response, body) = response.into_parts();
    let bytes = match body.try_into_bytes() {
        Ok(bytes) => bytes,
        Err(body) => return Ok(response.set_body(body)),
    };
    let reservation = count(request, bytes.len())?;
    let pieces = Pieces { left: bytes.len(), full: VecDeque::from([bytes]), last: Vec::new(), reservation };
    Ok(response.set_body(BoxBody::new(pieces)))
}

/// An answer as JSON. A large one is counted, and made in pieces: nothing is as long as the whole, and each piece is free
/// when it has been sent.
///
/// # Errors
/// As [`count`], and 500 when the value cannot be written as JSON.
pub(super) fn json(request: &HttpRequest, value: &impl Serialize) -> Result<BoxBody, Problem> {
    let mut pieces = Pieces::default();
    serde_json::to_writer(&mut pieces, value).map_err(|error| {
        tracing::error!(%error, "An answer could not be written as JSON");
        Problem::new(Code::Internal, "The answer could not be written.")
    })?;
    let last = Bytes::from(std::mem::take(&mut pieces.last));
    etag::digest(request, pieces.full.iter().chain([&last]));
    if pieces.full.is_empty() {
        return Ok(BoxBody::new(last));
    }
    pieces.full.push_back(last);
    pieces.reservation = count(request, pieces.left)?;
    Ok(BoxBody::new(pieces))
}

fn reserve(budget: &BodyBudget, request: &HttpRequest, length: usize) -> Result<Reservation, Problem> {
    let mut reservation = budget.reserve(Sender::of(request));
    reservation.grow(length).map_err(|_| too_many())?;
    Ok(reservation)
}

fn too_many() -> Problem {
    let detail =
        "The service holds as many large answers as it may, in all or for you. Read them faster, or ask for less.";
    Problem::new(Code::Unavailable, detail).with_retry_after(2)
}

/// An answer that waits for its reader.
#[derive(Default)]
struct Pieces {
    full: VecDeque<Bytes>,
    /// What is being written. Empty as soon as the answer is sent.
    last: Vec<u8>,
    left: usize,
    reservation: Option<Reservation>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.last.len() == PIECE {
            let full = std::mem::replace(&mut self.last, Vec::with_capacity(PIECE));
            self.full.push_back(full.into());
        }
        let fitting = bytes.len().min(PIECE - self.last.len());
        self.last.extend_from_slice(bytes.get(..fitting).unwrap_or(bytes));
        self.left += fitting;
        Ok(fitting)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MessageBody for Pieces {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.left as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let Some(first) = self.full.front_mut() else { return Poll::Ready(None) };
        let piece = first.split_to(first.len().min(PIECE));
        if first.is_empty() {
            self.full.pop_front();
        }
        self.left -= piece.len();
        Poll::Ready(Some(Ok(piece)))
    }
}
