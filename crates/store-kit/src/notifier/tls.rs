//! TLS for the connection that listens, with the meaning that libpq gives the options of a URL: libpq opens all other
//! connections.
//!
//! tokio-postgres knows fewer options than libpq; those that it does not know are read here or left out.

use std::fs;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where `sslrootcert=system` is on Debian, in our images, and on most others.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Options of libpq (section 34.1.2 of PostgreSQL's manual) that mean the same to tokio-postgres.
const SHARED: &[&str] = &[
    "options",
    "target_session_attrs",
    "channel_binding",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "hostaddr",
];

/// How to reach the server, and with what trust.
pub(super) fn parse(url: &str) -> Result<(tokio_postgres::Config, MakeRustlsConnect), Failure> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let options: Vec<(&str, &str)> = query.split('&').filter_map(|option| option.split_once('=')).collect();
    let value = |name: &str| options.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let kept: Vec<String> = options
        .iter()
        .filter(|(name, _)| SHARED.contains(name) || matches!(*name, "host" | "user" | "password" | "dbname" | "port"))
        .map(|(name, value)| match (*name, *value) {
            // libpq's word for nearly the same, which tokio-postgres does not know.
            ("target_session_attrs", "primary") => "target_session_attrs=read-write".to_owned(),
            (name, value) => format!("{name}={value}"),
        })
        .collect();
    let mut config: tokio_postgres::Config = format!("{address}?{}", kept.join("&")).parse()?;
    let roots = value("sslrootcert").map(|path| path.replace("%2F", "/").replace("%2f", "/"));
    let (mode, verifies) = match value("sslmode").unwrap_or("prefer") {
        "disable" => (SslMode::Disable, false),
        "allow" | "prefer" => (SslMode::Prefer, false),
        // With a root certificate libpq verifies here too, for compatibility with old programs.
        "require" => (SslMode::Require, roots.is_some()),
        "verify-ca" | "verify-full" => (SslMode::Require, true),
        other => return Err(format!("sslmode {other:?} is not known").into()),
    };
    config.ssl_mode(mode);
    Ok((config, MakeRustlsConnect::new(client(verifies.then(|| roots.unwrap_or_else(|| SYSTEM_ROOTS.to_owned())))?)))
}

fn client(roots: Option<String>) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match roots {
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider))),
        Some(path) => {
            let path = if path == "system" { SYSTEM_ROOTS } else { &path };
            let pem =
                fs::read(path).map_err(|error| format!("the root certificates {path} cannot be read: {error}"))?;
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
            if store.is_empty() {
                return Err(format!("there are no root certificates in {path}").into());
            }
            builder.with_root_certificates(store)
        }
    };
    Ok(builder.with_no_client_auth())
}

/// What `sslmode=require` means: encrypted, with any certificate. It is not even read, because libpq takes certificates that rustls does
/// not, as those of X.509 version 1 that the recipe of PostgreSQL's manual makes. So the signature is not checked either: an
/// attacker who can change what is sent could send another certificate anyway.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use tokio_postgres::config::TargetSessionAttrs;

    use super::*;

    /// `openssl x509 -req -in server.csr -signkey …` of OpenSSL 3.0, as in PostgreSQL's manual.
    const VERSION_1: &str = "MIIBFTCBvQIUMcmb4N1VRHy/4/DVrc6RJpW53sEwCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCZGIwIBcNMjYxMTI2MjExMTI3\
        WhgPMjEyNjExMDIyMTExMjdaMA0xCzAJBgNVBAMMAmRiMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEQ5jYfSGn1I+wQD90\
        bmez2XEd98H6mjSnigUj5IspCcnIIYNhipG0CcOX9clMTYIykTUhMokirvgl7uAmD4E5+jAKBggqhkjOPQQDAgNHADBEAiAl\
        /+De3OldCJy7M88vO+yU65iDVeTgt+3eW5tnj5Bj7wIgVcErnlv0/A94HdZB8EHj7JQWFsu7YhxiFRpmHOUsxEU=";
    const ITS_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMlE+AXv18BVG7wgqzia1VGwOXx2bBgqw2FaepQM9EUWhRANC\
        AARDmNh9IafUj7BAP3RuZ7PZcR33wfqaNKeKBSPkiykJycghg2GKkbQJw5f1yUxNgjKRNSEyiSKu+CXu4CYPgTn6";

    #[derive(Debug)]
    struct Always(Arc<CertifiedKey>);

    impl ResolvesServerCert for Always {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }

    #[test]
    fn a_certificate_of_version_1_is_taken_where_none_is_verified() {
        let provider = Arc::new(ring::default_provider());
        let der = |text: &str| STANDARD.decode(text).expect("base64");
        let key = PrivateKeyDer::Pkcs8(der(ITS_KEY).into());
        let key = provider.key_provider.load_private_key(key).expect("a key");
        let certified = CertifiedKey::new(vec![der(VERSION_1).into()], key);
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth();
        let config = config.with_cert_resolver(Arc::new(Always(Arc::new(certified))));
        let mut server = ServerConnection::new(Arc::new(config)).expect("a server");
        let name = ServerName::try_from("db.example.com").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client(None).expect("a client")), name).expect("a client");
        while client.is_handshaking() || server.is_handshaking() {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut up).expect("memory");
            }
            server.read_tls(&mut up.as_slice()).expect("memory");
            server.process_new_packets().expect("what the client said");
            while server.wants_write() {
                server.write_tls(&mut down).expect("memory");
            }
            client.read_tls(&mut down.as_slice()).expect("memory");
            client.process_new_packets().expect("the server's certificate");
        }
    }

    #[test]
    fn options_of_libpq_keep_their_meaning() {
        for (query, mode) in [
            ("", SslMode::Prefer),
            ("?sslmode=disable&connect_timeout=2&tcp_user_timeout=5000", SslMode::Disable),
            ("?sslmode=require&application_name=x&keepalives_count=3", SslMode::Require),
        ] {
            let (config, _) = parse(&format!("postgres://a:b@db.example.com:5433/c{query}")).expect("a URL");
            assert_eq!(config.get_ssl_mode(), mode, "{query}");
            assert_eq!((config.get_ports(), config.get_dbname()), (&[5433][..], Some("c")));
        }
        for (word, wanted) in [
            ("primary", TargetSessionAttrs::ReadWrite),
            ("read-write", TargetSessionAttrs::ReadWrite),
            ("any", TargetSessionAttrs::Any),
        ] {
            let url = format!("postgres://a:b@one:5433,two:5433/c?target_session_attrs={word}");
            let (config, _) = parse(&url).expect("a URL");
            assert_eq!((config.get_target_session_attrs(), config.get_hosts().len()), (wanted, 2), "{word}");
        }
        let refused = parse("postgres://h/c?sslmode=verify-full&sslrootcert=/nowhere.pem").err().expect("no such file");
        assert!(refused.to_string().contains("/nowhere.pem"), "{refused}");
        assert!(parse("postgres://h/c?sslmode=perhaps").is_err());
    }
}
