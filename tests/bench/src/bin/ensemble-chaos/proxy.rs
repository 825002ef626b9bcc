//! A TCP proxy that can delay, cut or stall: an unreliable network between two processes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The current state of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Open,
    /// Delays every piece in both directions.
    Slow(Duration),
    /// Resets all connections and closes new ones at once.
    Cut,
    /// Transfers nothing and closes nothing.
    Stall,
}

/// One link. It ends with the program.
pub(crate) struct Link {
    pub(crate) addr: SocketAddr,
    state: watch::Sender<LinkState>,
}

impl Link {
    pub(crate) async fn to(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let (state, now) = watch::channel(LinkState::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let now = now.clone();
                tokio::spawn(async move {
                    // Broken connections are the purpose of this proxy.
                    let _ = carry(client, upstream, now).await;
                });
            }
        });
        Ok(Self { addr, state })
    }

    pub(crate) fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }
}

async fn carry(client: TcpStream, upstream: SocketAddr, now: watch::Receiver<LinkState>) -> Result<()> {
    if *now.borrow() == LinkState::Cut {
        return Ok(());
    }
    let service = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    service.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_service, to_service) = service.into_split();
    let mut cut = now.clone();
    let now = Arc::new(now);
    tokio::select! {
        // Dropping both sockets with unsent data resets the connections.
        _ = cut.wait_for(|state| *state == LinkState::Cut) => {}
        // A connection that breaks on one side is closed on both.
        _ = async { tokio::try_join!(pump(from_client, to_service, &now), pump(from_service, to_client, &now)) } => {}
    }
    Ok(())
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    now: &watch::Receiver<LinkState>,
) -> Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        let state = *now.borrow();
        match state {
            LinkState::Slow(delay) => tokio::time::sleep(delay).await,
            LinkState::Stall => {
                now.clone().wait_for(|state| *state != LinkState::Stall).await?;
            }
            LinkState::Open | LinkState::Cut => {}
        }
        to.write_all(piece.get(..read).unwrap_or_default()).await?;
    }
}
