//! TLS for the connection that listens, with the meaning that libpq gives the options of a URL: libpq opens all other
//! connections.
//!
//! tokio-postgres knows fewer options than libpq; those that it does not know are read here or left out.

use std::fs;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
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
        .map(|(name, value)| format!("{name}={value}"))
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

/// What `sslmode=require` means: encrypted, with any certificate. Signatures are still checked.
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
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let refused = parse("postgres://h/c?sslmode=verify-full&sslrootcert=/nowhere.pem").err().expect("no such file");
        assert!(refused.to_string().contains("/nowhere.pem"), "{refused}");
        assert!(parse("postgres://h/c?sslmode=perhaps").is_err());
    }
}
