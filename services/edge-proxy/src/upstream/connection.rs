//! One connection to a service, with what was read and not used, and what is to be written.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

/// Read at once at most.
const READ: usize = 16 * 1024;

#[derive(Debug)]
pub struct Connection {
    io: TcpStream,
    pub address: SocketAddr,
    pub inbound: BytesMut,
    pub outbound: BytesMut,
}

impl Connection {
    pub fn new(io: TcpStream, address: SocketAddr) -> Box<Self> {
        Box::new(Self { io, address, inbound: BytesMut::new(), outbound: BytesMut::new() })
    }

    /// Writes all of `outbound`.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbound.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.outbound))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outbound.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads something into `inbound`: how much, 0 at the end. Memory is taken only when there is something to read, so
    /// that an idle stream costs none.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.io.poll_read_ready(cx)?.is_pending() {
            if self.inbound.is_empty() {
                self.inbound = BytesMut::new();
            }
            return Poll::Pending;
        }
        self.inbound.reserve(READ);
        pin!(self.io.read_buf(&mut self.inbound)).poll(cx)
    }

    /// Is it quiet and open? A service that closed it, or that spoke unasked, is not asked again on it.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0_u8];
        let read = self.io.try_read(&mut byte);
        self.inbound.is_empty()
            && self.outbound.is_empty()
            && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
