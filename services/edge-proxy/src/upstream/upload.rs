//! The request on its way to a service: a head that is written already, and the body as the client sends it.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_http::Payload;
use actix_http::error::PayloadError;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::Stream;

use super::connection::Connection;
use crate::domain::head_scanner::Framing;

pub(super) struct Upload {
    /// `None` when all of it has been taken from the client, or the service does not want the rest.
    payload: Option<Payload>,
    is_chunked: bool,
    /// The head waits for the first bytes of the body, to travel with them.
    head_may_wait: bool,
    is_cut: bool,
    /// Whether anything of the body moved in the last poll.
    pub(super) has_moved_body: bool,
}

/// What an upload stands still for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standstill {
    /// Everything is sent, or the service does not listen any more.
    Over,
    Client,
    Service,
}

impl Upload {
    pub(super) fn new(payload: Payload, framing: Framing) -> Self {
        Self {
            payload: (framing != Framing::None).then_some(payload),
            is_chunked: framing == Framing::Chunked,
            head_may_wait: true,
            is_cut: false,
            has_moved_body: false,
        }
    }

    /// Was the request sent to its end? Only then can the connection carry another one.
    pub(super) fn is_complete(&self) -> bool {
        self.payload.is_none() && !self.is_cut
    }

    /// Sends until one side stands still.
    ///
    /// # Errors
    /// The client's body broke off or is malformed.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Result<Standstill, PayloadError> {
        self.has_moved_body = false;
        let has_body = self.payload.is_some();
        loop {
            if !self.holds_head_back(connection) {
                let before = connection.outbound.len();
                match connection.poll_drain(cx) {
                    Poll::Ready(Ok(())) => self.has_moved_body |= has_body && before > 0,
                    // It may have answered before it stopped listening: what it said is read next.
                    Poll::Ready(Err(_)) => {
                        connection.outbound.clear();
                        self.payload = None;
                        self.is_cut = true;
                    }
                    Poll::Pending => {
                        self.has_moved_body |= connection.outbound.len() < before;
                        return Ok(Standstill::Service);
                    }
                }
            }
            let Some(payload) = &mut self.payload else { return Ok(Standstill::Over) };
            match Pin::new(payload).poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    self.head_may_wait = false;
                    self.frame(&bytes, &mut connection.outbound);
                }
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(None) => {
                    self.head_may_wait = false;
                    self.payload = None;
                    if self.is_chunked {
                        connection.outbound.put_slice(b"0\r\n\r\n");
                    }
                }
                Poll::Pending if self.holds_head_back(connection) => {
                    // The server decodes a body only after it has polled its handler once; that has happened now.
                    self.head_may_wait = false;
                    cx.waker().wake_by_ref();
                    return Ok(Standstill::Client);
                }
                Poll::Pending => return Ok(Standstill::Client),
            }
        }
    }

    fn holds_head_back(&self, connection: &Connection) -> bool {
        self.head_may_wait && self.payload.is_some() && !connection.outbound.is_empty()
    }

    /// Frames the body anew: nothing of the client's chunks goes on, least of all their extensions.
    fn frame(&self, bytes: &Bytes, out: &mut BytesMut) {
        if bytes.is_empty() {
            return;
        }
        out.reserve(bytes.len() + 20);
        if self.is_chunked {
            // Writing to a growing buffer cannot fail.
            let _ = write!(out.writer(), "{:x}\r\n", bytes.len());
        }
        out.put_slice(bytes);
        if self.is_chunked {
            out.put_slice(b"\r\n");
        }
    }
}
