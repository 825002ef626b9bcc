//! The socket as the HTTP server sees it: only what passed the scanners, and never too slowly.
//!
//! What is refused reaches the server as a request of its own, [`REFUSED_METHOD`], which no client can send because the
//! scanner lets no such method through; so the refusal is answered where all answers are made. A body that goes wrong ends
//! early instead; whoever reads it finds the reason in [`Connection::verdict`].
//!
//! A request that comes before the last one is answered waits here. The server would take it at once, and would then encode
//! the answer to the first by what it knows of the second: whether it was HEAD, and whether the connection goes on.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::admission::Permit;
use super::connection::Connection;
use super::deadline::Alarm;
use super::limits::Limits;
use super::reception::Reception;
use crate::domain::body_scanner::BodyScanner;
use crate::domain::head_scanner::{Framing, HeadScanner, Progress};
use crate::domain::refusal::{BODY_TOO_SHORT, BODY_TOO_SLOW, HEAD_TOO_SLOW, Refusal};

/// The method under which a refusal reaches the server.
pub const REFUSED_METHOD: &str = "REFUSED";
/// How much a client may send ahead of its turn before the edge stops reading.
const EARLY: usize = 16 * 1024;
const REFUSED_HEAD: &[u8] = b"REFUSED / HTTP/1.1\r\nhost: edge\r\nconnection: close\r\n\r\n";

enum Stage {
    Head { scanner: HeadScanner, since: Option<Instant> },
    Body(Reception),
    Refused { is_told: bool },
}

/// A guarded socket.
pub struct Guard<T> {
    io: T,
    connection: Rc<Connection>,
    limits: Limits,
    stage: Stage,
    /// Bytes read and not yet passed on; those up to `approved` may be.
    held: BytesMut,
    approved: usize,
    /// Nothing that is held has been looked at.
    is_unseen: bool,
    alarm: Alarm,
    is_fresh: bool,
    /// Something was said since the last head passed.
    has_spoken: bool,
    send_blocked_since: Option<Instant>,
    lingering: Option<Lingering>,
    _permit: Option<Permit>,
}

struct Lingering {
    until: Instant,
    budget: usize,
}

impl<T> Guard<T> {
    pub fn new(io: T, connection: Rc<Connection>, limits: Limits, permit: Option<Permit>) -> Self {
        Self {
            io,
            connection,
            limits,
            stage: Stage::Head { scanner: HeadScanner::default(), since: Some(Instant::now()) },
            held: BytesMut::new(),
            approved: 0,
            is_unseen: false,
            alarm: Alarm::default(),
            is_fresh: true,
            has_spoken: false,
            send_blocked_since: None,
            lingering: None,
            _permit: permit,
        }
    }

    pub fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Checks `bytes`, which follow what was checked before: how many of them may pass. The rest is part of a head that is
    /// not complete or was refused, or of a request whose turn has not come.
    fn inspect(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            match &mut self.stage {
                Stage::Head { .. } if self.connection.is_unanswered() => {
                    self.is_unseen = !rest.is_empty();
                    return at;
                }
                Stage::Head { scanner, since } => match scanner.scan(rest, &self.limits.head) {
                    Ok(Progress::More) => {
                        if !rest.is_empty() {
                            since.get_or_insert_with(Instant::now);
                        }
                        return at;
                    }
                    Ok(Progress::Complete { len, framing }) => {
                        at += len;
                        self.head_passed(framing);
                    }
                    Err(refusal) => {
                        self.refuse(refusal, false);
                        return at;
                    }
                },
                Stage::Body(_) if rest.is_empty() => return at,
                Stage::Body(body) => match body.take(rest) {
                    Ok((len, is_over)) => {
                        at += len;
                        if is_over {
                            self.stage = Stage::Head { scanner: HeadScanner::default(), since: None };
                        }
                    }
                    Err(refusal) => {
                        self.refuse(refusal, true);
                        return at;
                    }
                },
                Stage::Refused { .. } => return at,
            }
        }
    }

    fn head_passed(&mut self, framing: Framing) {
        self.is_fresh = false;
        self.has_spoken = false;
        self.connection.expect_answer();
        self.stage = match BodyScanner::new(framing, self.limits.head.body) {
            Some(scanner) => Stage::Body(Reception::new(scanner)),
            None => Stage::Head { scanner: HeadScanner::default(), since: None },
        };
    }

    /// Nothing passes any more. Inside a body its reader tells the client; elsewhere a request of our own does.
    fn refuse(&mut self, refusal: Refusal, in_body: bool) {
        self.connection.condemn(refusal);
        if !in_body {
            self.connection.expect_answer();
        }
        self.stage = Stage::Refused { is_told: in_body };
    }

    /// The client sends nothing. What is to be done about it, and when to look again.
    fn on_silence(&mut self, cx: &mut Context<'_>) -> Silence {
        let limits = self.limits;
        match &mut self.stage {
            Stage::Refused { .. } => Silence::Wait,
            Stage::Body(body) => {
                if self.alarm.wake_by(cx, body.wait(&limits)) {
                    return Silence::Wait;
                }
                self.refuse(BODY_TOO_SLOW, true);
                Silence::LookAgain
            }
            Stage::Head { since: Some(since), .. } => {
                if self.alarm.wake_by(cx, *since + limits.head_deadline) {
                    return Silence::Wait;
                }
                if self.is_fresh && self.held.is_empty() {
                    return Silence::Close;
                }
                self.refuse(HEAD_TOO_SLOW, false);
                Silence::LookAgain
            }
            Stage::Head { since: None, .. } => self.on_idle(cx),
        }
    }

    fn on_idle(&mut self, cx: &mut Context<'_>) -> Silence {
        if self.connection.is_unanswered() {
            // Nothing is due; but nobody may look here again when the answer is out, so some alarm must be set.
            if !self.alarm.is_set() {
                self.alarm.wake_by(cx, Instant::now() + self.limits.idle);
            }
            return Silence::Wait;
        }
        let is_in_time = self.alarm.wake_by(cx, self.connection.quiet_since() + self.limits.idle);
        if is_in_time { Silence::Wait } else { Silence::Close }
    }

    fn end_of_input(&mut self) -> io::Result<()> {
        if matches!(self.stage, Stage::Body(_)) && !self.has_spoken {
            // One that closed its sending side only, where a body was cut off, can still be told why.
            self.refuse(BODY_TOO_SHORT, true);
        }
        let is_between_requests = matches!(self.stage, Stage::Head { .. }) && !self.connection.is_unanswered();
        if is_between_requests || matches!(self.stage, Stage::Refused { .. }) {
            return Ok(());
        }
        // Nobody is there to read the answer; an error makes the server let go of it at once.
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client has gone"))
    }

    fn deliver(&mut self, out: &mut ReadBuf<'_>) {
        let len = self.approved.min(out.remaining());
        out.put_slice(self.held.get(..len).unwrap_or_default());
        self.held.advance(len);
        self.approved -= len;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }
}

enum Silence {
    Wait,
    LookAgain,
    Close,
}

impl<T: AsyncRead + Unpin> Guard<T> {
    /// Reads into the server's buffer and checks there: the usual case, a head that comes in one piece, is not copied.
    fn read_through(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = out.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, out))?;
        let bytes = out.filled().get(before..).unwrap_or_default();
        let len = bytes.len();
        if len > 0 {
            self.stop_waiting();
            let passed = self.inspect(bytes);
            if !matches!(self.stage, Stage::Refused { .. }) {
                self.held.extend_from_slice(bytes.get(passed..).unwrap_or_default());
            }
            out.set_filled(before + passed);
        }
        Poll::Ready(Ok(len))
    }

    /// Reads more of a head that came in pieces, or of a request that came too early.
    fn read_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Filling it with zeros first would cost more than most reads.
        let mut piece = [const { MaybeUninit::uninit() }; 4096];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut piece))?;
        self.held.extend_from_slice(piece.filled());
        self.is_unseen = true;
        Poll::Ready(Ok(piece.filled().len()))
    }

    /// Looks at what is held, now that its turn has come.
    fn look_at_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.is_unseen = false;
        self.approved = self.inspect(&held);
        self.held = held;
        if matches!(self.stage, Stage::Refused { .. }) {
            self.held.truncate(self.approved);
        }
    }

    /// While an answer is under way nothing passes; but a client that goes must be noticed, so that nobody works for it.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < EARLY {
            match self.read_more(cx)? {
                Poll::Ready(0) => return Poll::Ready(self.end_of_input()),
                Poll::Ready(_) => {}
                Poll::Pending => {
                    self.on_silence(cx);
                    break;
                }
            }
        }
        if !self.held.is_empty() {
            self.connection.wake_when_answered(cx.waker());
        }
        Poll::Pending
    }

    fn stop_waiting(&mut self) {
        if let Stage::Body(body) = &mut self.stage {
            body.stop_waiting();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guard<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.approved > 0 {
                this.deliver(out);
                return Poll::Ready(Ok(()));
            }
            if let Stage::Refused { is_told } = &mut this.stage {
                if !std::mem::replace(is_told, true) {
                    out.put_slice(REFUSED_HEAD);
                }
                return Poll::Ready(Ok(()));
            }
            if matches!(this.stage, Stage::Head { .. }) && this.connection.is_unanswered() {
                return this.watch(cx);
            }
            if this.is_unseen {
                this.look_at_held();
                continue;
            }
            let before = out.filled().len();
            let read = if this.held.is_empty() { this.read_through(cx, out) } else { this.read_more(cx) };
            match read? {
                Poll::Ready(0) => return Poll::Ready(this.end_of_input()),
                Poll::Ready(_) if out.filled().len() > before => return Poll::Ready(Ok(())),
                Poll::Ready(_) => {}
                Poll::Pending => match this.on_silence(cx) {
                    Silence::Wait => return Poll::Pending,
                    Silence::LookAgain => {}
                    Silence::Close => return Poll::Ready(Ok(())),
                },
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> Guard<T> {
    fn sent(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.has_spoken = true;
        if sent.is_ready() {
            self.send_blocked_since = None;
            return sent;
        }
        let since = *self.send_blocked_since.get_or_insert_with(Instant::now);
        if self.alarm.wake_by(cx, since + self.limits.send_stall) {
            return Poll::Pending;
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.sent(cx, sent)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    /// Closes in two steps when the client may still be sending: closing at once would throw the answer away that it has
    /// not read yet (RFC 9112, section 9.6).
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if matches!(this.stage, Stage::Head { .. }) && this.held.is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.lingering = Some(Lingering { until: Instant::now() + this.limits.linger, budget: 1 << 20 });
        }
        let Some(lingering) = &mut this.lingering else { return Poll::Ready(Ok(())) };
        let mut piece = [0_u8; 4096];
        loop {
            let mut piece = ReadBuf::new(&mut piece);
            match Pin::new(&mut this.io).poll_read(cx, &mut piece) {
                Poll::Ready(Ok(())) if !piece.filled().is_empty() && lingering.budget > 0 => {
                    lingering.budget = lingering.budget.saturating_sub(piece.filled().len());
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending if this.alarm.wake_by(cx, lingering.until) => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.io).poll_write_vectored(cx, pieces);
        this.sent(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
