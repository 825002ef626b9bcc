//! One request and its answer on one connection.
//!
//! Both directions are driven by whoever polls: until the head of the answer is there, the request; after that, the body
//! of the answer, which goes on sending what is left of the request. Between the sockets lies one buffer each way, and
//! nothing is read from one side before the other has taken what was read last.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::Payload;
use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::answer_body::{AnswerBody, Piece};
use super::answer_head::{self, AnswerHead};
use super::connection::Connection;
use super::failure::Failure;
use super::pool::Pool;
use super::upload::{Standstill, Upload};
use crate::domain::head_scanner::Framing;

/// A request on its way out.
pub struct Sending {
    connection: Box<Connection>,
    upload: Upload,
    answers_head: bool,
    /// Since when only the service is waited for.
    waiting_since: Instant,
    has_heard: bool,
}

impl Sending {
    /// `connection.outbound` holds the head.
    pub fn new(connection: Box<Connection>, payload: Payload, framing: Framing, answers_head: bool) -> Self {
        let upload = Upload::new(payload, framing);
        Self { connection, upload, answers_head, waiting_since: Instant::now(), has_heard: false }
    }

    /// Sends the request and waits for the head of the answer.
    ///
    /// # Errors
    /// The head did not come: the connection broke, the head is malformed, or the service did nothing for `timeout`.
    pub async fn head(&mut self, timeout: Duration) -> Result<AnswerHead, Failure> {
        let mut alarm = pin!(sleep_until(self.waiting_since + timeout));
        poll_fn(|cx| {
            if let Poll::Ready(head) = self.poll_head(cx) {
                return Poll::Ready(head);
            }
            while alarm.as_mut().poll(cx).is_ready() {
                let deadline = self.waiting_since + timeout;
                if Instant::now() >= deadline {
                    return Poll::Ready(Err(Failure::Timeout));
                }
                alarm.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }

    /// Has the service not said a single byte?
    pub fn was_silent(&self) -> bool {
        !self.has_heard
    }

    /// The body of the answer whose head was `head`. `stall` is how long the service may be silent within it.
    pub fn into_answer(self, head: &AnswerHead, pool: Rc<Pool>, stall: Option<Duration>) -> Answer {
        let answer = AnswerBody::new(head.framing);
        let is_kept = head.is_kept;
        // Refusals close connections for reasons of their own.
        if head.is_farewell && head.response.status().as_u16() < 400 {
            pool.leave(self.connection.address);
        }
        Answer {
            connection: Some(self.connection),
            upload: self.upload,
            body: answer,
            is_kept,
            pool,
            stall,
            alarm: None,
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<AnswerHead, Failure>> {
        let standstill = self.upload.poll(cx, &mut self.connection).map_err(Failure::Client)?;
        if standstill == Standstill::Client || self.upload.has_moved_body {
            self.waiting_since = Instant::now();
        }
        loop {
            if self.has_heard
                && let Some(head) = answer_head::parse(&mut self.connection.inbound, self.answers_head)?
            {
                return Poll::Ready(Ok(head));
            }
            match self.connection.poll_fill(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Failure::Closed)),
                Poll::Ready(Ok(_)) => self.has_heard = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failure::Broken(error))),
            }
        }
    }
}

/// The body of an answer as it comes.
pub struct Answer {
    connection: Option<Box<Connection>>,
    upload: Upload,
    body: AnswerBody,
    is_kept: bool,
    pool: Rc<Pool>,
    stall: Option<Duration>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    /// The next piece; `None` after the last one, when the connection is kept for another request.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        // Whatever becomes of the rest of the request, the answer counts.
        let _ = self.upload.poll(cx, connection);
        loop {
            match self.body.take(&mut connection.inbound) {
                Ok(Piece::Data(bytes)) => {
                    self.alarm = None;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Ok(Piece::End) => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Ok(Piece::More) => {}
                Err(error) => return self.fail(io::Error::other(error)),
            }
            match connection.poll_fill(cx) {
                Poll::Ready(Ok(0)) if self.body.may_end_by_close() => {
                    self.connection = None;
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(0)) => return self.fail(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return self.fail(error),
                Poll::Pending => return self.poll_stall(cx),
            }
        }
    }

    /// Cuts the client's connection as well: an answer that breaks off must not look complete.
    fn fail(&mut self, error: io::Error) -> Poll<Option<io::Result<Bytes>>> {
        self.connection = None;
        Poll::Ready(Some(Err(error)))
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(stall) = self.stall else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(stall)));
        if alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.fail(io::Error::new(io::ErrorKind::TimedOut, "the service stopped in the middle of its answer"))
    }

    /// The body is over: what is left of the request decides whether the connection is of further use.
    pub fn finish(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let is_clean = self.is_kept && self.upload.is_complete() && connection.inbound.is_empty();
        if is_clean {
            self.pool.give_back(connection);
        }
    }
}
