//! The bodies of the edge's answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_http::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;
use ensemble_chassis::Drain;
use ensemble_chassis::http::InFlightGuard;

use super::streams::StreamPermit;
use crate::guard::connection::Answering;
use crate::upstream::answer_head::AnswerFraming;
use crate::upstream::exchange::Answer;

/// Tells a reader of Server-Sent Events to come back, to another replica.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

/// A body, with everything that must last until its last byte is out.
pub struct EdgeBody {
    content: Content,
    _held: Held,
}

/// What an answer in the making keeps from others.
#[derive(Default)]
pub struct Held {
    pub answering: Option<Answering>,
    pub passage: Option<InFlightGuard>,
    pub stream: Option<StreamPermit>,
}

enum Content {
    Whole(Bytes),
    Page(BoxBody),
    /// The answer to HEAD has the size of what it does not carry.
    Absent(BodySize),
    Service {
        answer: Answer,
        size: BodySize,
    },
    Live(Live),
}

/// What goes on for as long as there is something to tell.
struct Live {
    answer: Answer,
    is_events: bool,
    closing: Pin<Box<dyn Future<Output = ()>>>,
    is_closing: bool,
    /// The last bytes that went out; an event ends with an empty line.
    tail: [u8; 2],
    is_over: bool,
}

impl EdgeBody {
    pub fn whole(bytes: impl Into<Bytes>, held: Held) -> Self {
        Self { content: Content::Whole(bytes.into()), _held: held }
    }

    pub fn page(body: BoxBody, held: Held) -> Self {
        Self { content: Content::Page(body), _held: held }
    }

    /// `length` is what Content-Length said of a body that is not sent.
    pub fn absent(length: Option<u64>, held: Held) -> Self {
        Self { content: Content::Absent(length.map_or(BodySize::None, BodySize::Sized)), _held: held }
    }

    pub fn service(answer: Answer, framing: AnswerFraming, held: Held) -> Self {
        let size = match framing {
            AnswerFraming::None => BodySize::Sized(0),
            AnswerFraming::Length(length) => BodySize::Sized(length),
            AnswerFraming::Chunked | AnswerFraming::UntilClose => BodySize::Stream,
        };
        Self { content: Content::Service { answer, size }, _held: held }
    }

    /// Passes on what comes until the service ends it or the edge closes: events with a hint to come back; text, which has
    /// no place for one, as it ends when the service closes. Who reads it asks whether there is more in any case.
    pub fn live(answer: Answer, is_events: bool, drain: Drain, held: Held) -> Self {
        let closing = Box::pin(async move { drain.closing().await });
        let live = Live { answer, is_events, closing, is_closing: false, tail: *b"\n\n", is_over: false };
        Self { content: Content::Live(live), _held: held }
    }
}

impl Live {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Bytes>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.is_closing = self.is_closing || self.closing.as_mut().poll(cx).is_ready();
        if self.is_closing && !self.is_events {
            self.is_over = true;
            return Poll::Ready(None);
        }
        if self.is_closing && self.tail == *b"\n\n" {
            self.is_over = true;
            return Poll::Ready(Some(Ok(Bytes::from_static(COME_BACK))));
        }
        let piece = std::task::ready!(self.answer.poll_piece(cx));
        if let Some(Ok(bytes)) = &piece {
            for byte in bytes.iter().skip(bytes.len().saturating_sub(2)) {
                self.tail = [self.tail[1], *byte];
            }
        }
        Poll::Ready(piece)
    }
}

impl MessageBody for EdgeBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        match &self.content {
            Content::Whole(bytes) => BodySize::Sized(bytes.len() as u64),
            Content::Page(body) => body.size(),
            Content::Absent(size) | Content::Service { size, .. } => *size,
            Content::Live(_) => BodySize::Stream,
        }
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let poll = match &mut self.get_mut().content {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => return Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Content::Page(body) => return Pin::new(body).poll_next(cx),
            Content::Absent(_) => return Poll::Ready(None),
            Content::Service { answer, .. } => answer.poll_piece(cx),
            Content::Live(events) => events.poll_next(cx),
        };
        poll.map(|piece| piece.map(|piece| piece.map_err(Into::into)))
    }
}
