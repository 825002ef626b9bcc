//! HTTPS of a service's own: what one client can hold of it, and for how long. The service behind is the test's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_chassis::Drain;
use ensemble_chassis::process::{TlsFront, TlsLimits, TlsSettings, install_providers};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Nothing in these tests takes longer.
const SOON: Duration = Duration::from_secs(60);
/// Longer than a test.
const NEVER: Duration = Duration::from_secs(600);
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

const CURVE: [&str; 7] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"];

fn openssl(files: &tempfile::TempDir, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(files.path()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Another key and a certificate for `localhost`, in the place of those before.
fn issue(files: &tempfile::TempDir) {
    let server = ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=localhost"];
    let names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
    openssl(files, &[&server[..], &names, &["-keyout", "key.pem", "-out", "cert.pem"], &CURVE].concat());
}

struct Place {
    https: SocketAddr,
    service: TcpListener,
    connector: TlsConnector,
    files: tempfile::TempDir,
}

impl Place {
    /// With an authority that only this test knows, and a certificate of it for `localhost`.
    async fn new(limits: TlsLimits) -> Self {
        install_providers();
        let files = tempfile::tempdir().unwrap();
        openssl(
            &files,
            &[&["req", "-x509", "-subj", "/CN=Test", "-keyout", "ca.key", "-out", "ca.pem"], &CURVE[..]].concat(),
        );
        issue(&files);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(files.path().join("ca.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let settings = TlsSettings {
            listen: (HOME, 0).into(),
            certificate: files.path().join("cert.pem"),
            key: files.path().join("key.pem"),
        };
        let front = TlsFront::bind(settings, limits).unwrap();
        let https = front.address();
        let service = TcpListener::bind((HOME, 0)).await.unwrap();
        tokio::spawn(front.run(service.local_addr().unwrap(), Drain::never()));
        Self { https, service, connector: TlsConnector::from(Arc::new(config)), files }
    }

    /// A connection from this address, without a handshake.
    async fn plain(&self, from: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(self.https).await.unwrap()
    }

    /// `None`: there was no place for it.
    async fn client(&self, from: IpAddr) -> Option<TlsStream<TcpStream>> {
        let stream = self.plain(from).await;
        let shaken = self.connector.connect(ServerName::try_from("localhost").unwrap(), stream);
        timeout(SOON, shaken).await.unwrap().ok()
    }

    /// A client, and its connection to the service. It tries until there is a place.
    async fn pair(&self, from: IpAddr) -> (TlsStream<TcpStream>, TcpStream) {
        let (tried, mut polls) = (Instant::now(), interval(Duration::from_millis(20)));
        let client = loop {
            if let Some(client) = self.client(from).await {
                break client;
            }
            assert!(tried.elapsed() < SOON, "no place became free");
            polls.tick().await;
        };
        (client, timeout(SOON, self.service.accept()).await.unwrap().unwrap().0)
    }
}

/// Writes until the front takes no more for a second.
async fn flood(service: &mut TcpStream) {
    let piece = vec![b'x'; 64 << 10];
    while timeout(Duration::from_secs(1), service.write_all(&piece)).await.is_ok_and(|written| written.is_ok()) {}
}

#[tokio::test]
async fn clients_that_keep_their_side_open_give_their_places_back() {
    let limits =
        TlsLimits { connections: 3, per_holder: 3, last_bytes: Duration::from_millis(100), ..TlsLimits::default() };
    let place = Place::new(limits).await;
    let mut kept = Vec::new();
    for _ in 0..9 {
        let (client, service) = place.pair(HOME).await;
        drop(service);
        kept.push(client);
    }
    assert_eq!(kept.len(), 9, "each held its place and sent nothing");
}

#[tokio::test]
async fn one_address_has_a_share_before_its_handshake() {
    let limits = TlsLimits { connections: 6, per_holder: 2, handshake: NEVER, ..TlsLimits::default() };
    let place = Place::new(limits).await;
    let silent = [place.plain(HOME).await, place.plain(HOME).await];
    assert!(place.client(HOME).await.is_none(), "two of two are open");
    let (elsewhere, service) = place.pair(ELSEWHERE).await;
    drop(silent);
    // Those of the silent ones are free again.
    drop(place.pair(HOME).await);
    drop((elsewhere, service));
}

#[tokio::test]
async fn an_address_without_a_holder_is_bounded_by_the_limit_of_all() {
    let holder = Arc::new(|ip| (ip != HOME).then_some(ip));
    let place = Place::new(TlsLimits { connections: 3, per_holder: 1, holder, ..TlsLimits::default() }).await;
    let held = [place.pair(HOME).await, place.pair(HOME).await, place.pair(HOME).await];
    assert!(place.client(ELSEWHERE).await.is_none());
    drop(held);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let stall = Duration::from_secs(1);
    let place = Place::new(TlsLimits { per_holder: 1, stall, last_bytes: NEVER, ..TlsLimits::default() }).await;
    let (unread, mut service) = place.pair(HOME).await;
    // The service does not end. The place is free again although neither side closed.
    let wrote = tokio::spawn(async move {
        let piece = vec![b'x'; 64 << 10];
        while service.write_all(&piece).await.is_ok() {}
    });
    let next = place.pair(HOME).await;
    timeout(SOON, wrote).await.unwrap().unwrap();
    drop((unread, next));
}

#[tokio::test]
async fn a_reset_of_the_service_is_seen_while_the_client_reads_nothing() {
    let last_bytes = Duration::from_millis(100);
    let place = Place::new(TlsLimits { per_holder: 1, stall: NEVER, last_bytes, ..TlsLimits::default() }).await;
    let (unread, mut service) = place.pair(HOME).await;
    flood(&mut service).await;
    SockRef::from(&service).set_linger(Some(Duration::ZERO)).unwrap();
    drop(service);
    let next = place.pair(HOME).await;
    drop((unread, next));
}

#[tokio::test]
async fn a_live_stream_continues_and_loses_no_byte() {
    let limits = TlsLimits { last_bytes: Duration::from_secs(8), ..TlsLimits::default() };
    let place = Place::new(limits).await;
    let (mut client, mut service) = place.pair(HOME).await;
    client.write_all(b"GET").await.unwrap();
    client.flush().await.unwrap();
    let mut asked = [0; 3];
    timeout(SOON, service.read_exact(&mut asked)).await.unwrap().unwrap();
    assert_eq!(&asked, b"GET");
    // Silent for longer than the last bytes may take: nothing comes, and nothing ends.
    let silent = timeout(Duration::from_secs(9), client.read(&mut asked)).await;
    assert!(silent.is_err(), "an idle stream ended: {silent:?}");
    // Much more than all buffers hold, then the end.
    let (all, pieces) = (64 << 20, vec![7; 1 << 20]);
    let wrote = tokio::spawn(async move {
        for _ in 0..64 {
            service.write_all(&pieces).await.unwrap();
        }
    });
    let mut got = Vec::new();
    timeout(SOON, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got.len(), all);
    wrote.await.unwrap();
}

#[tokio::test]
async fn a_client_that_has_ended_still_gets_its_answer() {
    let place = Place::new(TlsLimits::default()).await;
    let (mut client, mut service) = place.pair(HOME).await;
    client.write_all(b"all of it").await.unwrap();
    client.shutdown().await.unwrap();
    let mut asked = String::new();
    timeout(SOON, service.read_to_string(&mut asked)).await.unwrap().unwrap();
    assert_eq!(asked, "all of it");
    service.write_all(b"answer").await.unwrap();
    drop(service);
    let mut got = String::new();
    timeout(SOON, client.read_to_string(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, "answer");
}

/// The certificate that the other side has shown.
fn shown(client: &TlsStream<TcpStream>) -> Vec<u8> {
    client.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn a_renewed_certificate_is_served_without_a_restart() {
    let place = Place::new(TlsLimits { look_again: Duration::ZERO, ..TlsLimits::default() }).await;
    let on_disk = || CertificateDer::from_pem_file(place.files.path().join("cert.pem")).unwrap().to_vec();
    let (mut before, mut behind) = place.pair(HOME).await;
    let first = on_disk();
    assert_eq!(shown(&before), first);

    // A renewal that is half done, or went wrong: the previous certificate is still served.
    let key = place.files.path().join("key.pem");
    let good = std::fs::read(&key).unwrap();
    for broken in ["", "no key"] {
        std::fs::write(&key, broken).unwrap();
        assert_eq!(shown(&place.pair(HOME).await.0), first);
    }
    std::fs::remove_file(&key).unwrap();
    assert_eq!(shown(&place.pair(HOME).await.0), first);
    std::fs::write(&key, good).unwrap();
    assert_eq!(shown(&place.pair(HOME).await.0), first);

    issue(&place.files);
    let second = on_disk();
    assert_ne!(first, second);
    assert_eq!(shown(&place.pair(HOME).await.0), second);

    // A connection from before still works.
    before.write_all(b"go on").await.unwrap();
    let mut read = [0; 5];
    timeout(SOON, behind.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(&read, b"go on");
}
