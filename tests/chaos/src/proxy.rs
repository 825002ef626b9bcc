//! A TCP proxy that can be told to delay, cut or swallow: the network between two processes, made unreliable on purpose.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the link does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// Every piece waits this long, in both directions.
    Slow(Duration),
    /// Connections are reset, new ones are closed at once.
    Cut,
    /// Nothing comes through and nothing is closed.
    Swallow,
}

/// One link. Ends with the program.
pub(crate) struct Link {
    pub(crate) addr: SocketAddr,
    weather: watch::Sender<Weather>,
}

impl Link {
    pub(crate) async fn to(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let (weather, now) = watch::channel(Weather::Fair);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let now = now.clone();
                tokio::spawn(async move {
                    // A connection that breaks is what this program is for.
                    let _ = carry(client, upstream, now).await;
                });
            }
        });
        Ok(Self { addr, weather })
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn carry(client: TcpStream, upstream: SocketAddr, now: watch::Receiver<Weather>) -> Result<()> {
    if *now.borrow() == Weather::Cut {
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
        // Dropping both halves of both sockets closes them with what was not sent: a reset for whoever still writes.
        _ = cut.wait_for(|weather| *weather == Weather::Cut) => {}
        // What one side breaks is broken for both.
        _ = async { tokio::try_join!(pump(from_client, to_service, &now), pump(from_service, to_client, &now)) } => {}
    }
    Ok(())
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    now: &watch::Receiver<Weather>,
) -> Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        let weather = *now.borrow();
        match weather {
            Weather::Slow(delay) => tokio::time::sleep(delay).await,
            Weather::Swallow => {
                now.clone().wait_for(|weather| *weather != Weather::Swallow).await?;
            }
            Weather::Fair | Weather::Cut => {}
        }
        to.write_all(piece.get(..read).unwrap_or_default()).await?;
    }
}
