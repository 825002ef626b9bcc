//! HTTPS for a service that stands at the network itself, without a proxy before it. It decrypts and passes the bytes on to the service's own
//! listener on loopback, which reads HTTP as it does from a proxy, with all of its limits. The binding of actix would be less code, but it
//! sees a client only after the handshake: it cannot bound what one address holds before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as Bound};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::{Drain, pipe, prepare_connection};
use crate::config::Vars;
use crate::shares::Shares;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// After an accept that failed: no file was free.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// Where to serve HTTPS, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    pub listen: SocketAddr,
    /// PEM: the certificate, and those that lead to its root.
    pub certificate: PathBuf,
    /// PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

impl TlsSettings {
    /// `None` without a certificate.
    pub fn read(vars: &mut Vars) -> Option<Self> {
        let listen = vars.parse(
            "TLS_LISTEN",
            "where to serve HTTPS, when there is a certificate",
            SocketAddr::from(([0, 0, 0, 0], 8443)),
        );
        let certificate = vars.optional("TLS_CERTIFICATE", "the file of a certificate and its chain, in PEM");
        let key = vars.optional("TLS_CERTIFICATE_KEY", "the file of the certificate's private key, in PEM");
        match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Self { listen, certificate: certificate.into(), key: key.into() }),
            (None, None) => None,
            (Some(_), None) => {
                vars.add_error("TLS_CERTIFICATE_KEY", "is required with TLS_CERTIFICATE");
                None
            }
            (None, Some(_)) => {
                vars.add_error("TLS_CERTIFICATE", "is required with TLS_CERTIFICATE_KEY");
                None
            }
        }
    }
}

impl TlsSettings {
    /// Whether the files can be used. They are read again at the start.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub fn check(&self) -> Result<()> {
        load(self).map(drop)
    }
}

/// What clients may hold of the listener, and for how long.
#[derive(Clone)]
pub struct TlsLimits {
    /// Connections at one time. Each holds two buffers of 8 KiB and the state of TLS.
    pub connections: usize,
    /// Connections of one holder, including those whose handshake is not finished.
    pub per_holder: usize,
    /// The holder for which a connection from this address counts. `None`: it counts for no holder, like those of a proxy.
    pub holder: Arc<dyn Fn(IpAddr) -> Option<IpAddr> + Send + Sync>,
    /// A client that has not finished its handshake by then is no client.
    pub handshake: Duration,
    /// How long a client may take nothing of an answer.
    pub stall: Duration,
    /// How long a client may take for the last bytes after the service has ended.
    pub last_bytes: Duration,
    /// The least time between two looks for a new certificate. A connection causes the look.
    pub look_again: Duration,
}

impl TlsLimits {
    /// The defaults, with this many connections of one holder and this time for a client that takes nothing.
    pub fn by(
        per_holder: usize,
        stall: Duration,
        holder: impl Fn(IpAddr) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        Self { per_holder, stall, holder: Arc::new(holder), ..Self::default() }
    }
}

impl Default for TlsLimits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            per_holder: 256,
            holder: Arc::new(Some),
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            last_bytes: Duration::from_secs(5),
            look_again: Duration::from_secs(60),
        }
    }
}

/// The listener for HTTPS, and who is behind each connection that it makes to the service.
#[derive(Clone)]
pub struct TlsFront(Arc<Front>);

struct Front {
    settings: TlsSettings,
    address: SocketAddr,
    /// Taken by [`TlsFront::run`].
    bound: Mutex<Option<Bound>>,
    current: Mutex<Current>,
    /// By the address of this side.
    clients: Mutex<HashMap<SocketAddr, SocketAddr>>,
    open: Arc<Semaphore>,
    shares: Arc<Shares<IpAddr>>,
    limits: TlsLimits,
}

struct Current {
    config: Arc<ServerConfig>,
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

impl TlsFront {
    /// Reads the files and takes the address.
    ///
    /// # Errors
    /// The files cannot be read, do not belong together, or the address is taken.
    pub fn bind(settings: TlsSettings, limits: TlsLimits) -> Result<Self> {
        // Before they are read, so that a change in between is not missed.
        let changed = changed(&settings);
        let config = load(&settings)?;
        let bound = Bound::bind(settings.listen).with_context(|| {
            format!("cannot listen on {} for HTTPS; choose another address (TLS_LISTEN, --tls-listen)", settings.listen)
        })?;
        bound.set_nonblocking(true)?;
        let address = bound.local_addr()?;
        let current = Current { config, changed, looked: Instant::now() };
        Ok(Self(Arc::new(Front {
            settings,
            address,
            bound: Mutex::new(Some(bound)),
            current: Mutex::new(current),
            clients: Mutex::default(),
            open: Arc::new(Semaphore::new(limits.connections)),
            shares: Shares::new(limits.per_holder, usize::MAX),
            limits,
        })))
    }

    /// The address of the listener, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The client behind a connection to the service: the same address when it did not come through here.
    pub fn client(&self, peer: SocketAddr) -> SocketAddr {
        lock(&self.0.clients).get(&peer).copied().unwrap_or(peer)
    }

    /// Passes connections on to the service, which listens at this address, until the drain closes.
    pub async fn run(self, service: SocketAddr, drain: Drain) {
        let service = dialled(service);
        let Some(bound) = lock(&self.0.bound).take() else { return };
        let listener = match TcpListener::from_std(bound) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "HTTPS is not served"),
        };
        tracing::info!(address = %self.0.address, "Serving HTTPS");
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = drain.closing() => return,
            };
            let (stream, client) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted");
                    sleep(AFTER_AN_ERROR).await;
                    continue;
                }
            };
            // One too many, of its holder or of all, is closed at once.
            let share = match (self.0.limits.holder)(client.ip()).map(|holder| self.0.shares.take(holder)) {
                Some(None) => continue,
                Some(share) => share,
                None => None,
            };
            let Ok(permit) = self.0.open.clone().try_acquire_owned() else { continue };
            let front = self.clone();
            tokio::spawn(async move {
                if let Err(error) = front.pass_on(stream, client, service).await {
                    tracing::debug!(%error, %client, "A connection ended");
                }
                drop((permit, share));
            });
        }
    }

    async fn pass_on(&self, stream: TcpStream, client: SocketAddr, service: SocketAddr) -> Result<()> {
        let limits = &self.0.limits;
        stream.set_nodelay(true)?;
        prepare_connection(&stream, limits.stall);
        let acceptor = TlsAcceptor::from(self.config());
        let stream = timeout(limits.handshake, acceptor.accept(stream)).await.context("no handshake in time")??;
        let socket = if service.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(service.ip(), 0))?;
        // The service may ask who it is as soon as it has the connection.
        let known = Known::new(&self.0, socket.local_addr()?, client);
        let behind = timeout(CONNECT_WITHIN, socket.connect(service)).await??;
        behind.set_nodelay(true)?;
        pipe::pass_on(stream, &behind, limits.last_bytes).await?;
        drop((behind, known));
        Ok(())
    }

    /// The newest certificate. One that cannot be used leaves the one before.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = lock(&self.0.current);
        if current.looked.elapsed() >= self.0.limits.look_again {
            current.looked = Instant::now();
            let found = changed(&self.0.settings);
            if found != current.changed {
                match load(&self.0.settings) {
                    Ok(config) => {
                        (current.config, current.changed) = (config, found);
                        tracing::info!("HTTPS has a new certificate");
                    }
                    Err(error) => tracing::error!("The new certificate is not used: {error:#}"),
                }
            }
        }
        current.config.clone()
    }
}

/// The entry of a connection, for as long as it is open.
struct Known<'a> {
    front: &'a Front,
    at: SocketAddr,
}

impl<'a> Known<'a> {
    fn new(front: &'a Front, at: SocketAddr, client: SocketAddr) -> Self {
        lock(&front.clients).insert(at, client);
        Self { front, at }
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        lock(&self.front.clients).remove(&self.at);
    }
}

/// The address to dial on this machine for what listens on all interfaces.
fn dialled(at: SocketAddr) -> SocketAddr {
    match at.ip() {
        ip if !ip.is_unspecified() => at,
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, at.port())),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, at.port())),
    }
}

fn load(settings: &TlsSettings) -> Result<Arc<ServerConfig>> {
    let (certificate, key) = (&settings.certificate, &settings.key);
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .with_context(|| format!("the certificate {} cannot be read; it must be a PEM file", certificate.display()))?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in {}; it must be a PEM file", certificate.display());
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| {
        format!("the key {} cannot be read; it must be a PEM file without a password", key.display())
    })?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, secret).with_context(|| {
        format!("{} and {} do not work together; take both from one certificate", certificate.display(), key.display())
    })?;
    Ok(Arc::new(config))
}

fn changed(settings: &TlsSettings) -> [Option<SystemTime>; 2] {
    [&settings.certificate, &settings.key].map(|path| std::fs::metadata(path).and_then(|file| file.modified()).ok())
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
