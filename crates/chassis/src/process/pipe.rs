//! Passes the bytes of a decrypted connection on, both ways. The service decides when it is over: a client that keeps its side open, or
//! reads nothing, holds a connection only for as long as the service does.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, copy, sink};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Of each direction.
const BUFFER: usize = 8 << 10;

/// Ends when the service has ended and its last bytes are with the client, or when the client was lost. `last_bytes` is the most that
/// the client may take after the service's end.
pub(super) async fn pass_on<C>(client: C, service: &TcpStream, last_bytes: Duration) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let both = async {
        let mut answers = std::pin::pin!(answers(service, &mut to_client));
        tokio::select! {
            ended = &mut answers => ended,
            ended = requests(&mut from_client, service) => match ended? {
                End::Client => answers.await,
                End::Service => timeout(last_bytes, answers).await?,
            },
        }
    };
    // While the client reads nothing, nothing is read from the service either, and a reset would not be seen.
    let reset = async {
        let _ = service.ready(Interest::ERROR).await;
        sleep(last_bytes).await;
    };
    tokio::select! {
        ended = both => ended?,
        () = reset => return Err(io::ErrorKind::ConnectionReset.into()),
    }
    // A socket that is closed with unread bytes is reset, and the client might lose what it has not read yet.
    let rest = async {
        to_client.shutdown().await?;
        copy(&mut from_client, &mut sink()).await
    };
    timeout(last_bytes, rest).await?.map(drop)
}

enum End {
    Client,
    Service,
}

/// Says who ended first. An error is the client's.
async fn requests(mut client: impl AsyncRead + Unpin, service: &TcpStream) -> io::Result<End> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = client.read(&mut buffer).await?;
        if count == 0 {
            let _ = SockRef::from(service).shutdown(Shutdown::Write);
            return Ok(End::Client);
        }
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match service.try_write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => service.writable().await?,
                Err(_) => return Ok(End::Service),
            }
        }
    }
}

async fn answers(service: &TcpStream, mut client: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match service.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                client.write_all(buffer.get(..count).unwrap_or_default()).await?;
                client.flush().await?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => service.readable().await?,
            Err(error) => return Err(error),
        }
    }
}
