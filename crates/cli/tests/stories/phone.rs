//! The way to a phone: HTTPS that `ensemble up` serves itself, the check of an address, and the code for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ensemble_testkit::free_port;
use tempfile::TempDir;

use crate::ensemble::{Running, User, up, up_at};
use crate::linking::{code_of, join};
use crate::runs::program;

/// An authority that only this test knows, and a certificate of it for `localhost`.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).current_dir(folder.path()).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"];
        openssl(&[&["req", "-x509", "-subj", "/CN=Test", "-keyout", "ca.key", "-out", "ca.pem"], &curve[..]].concat());
        let server = ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=localhost"];
        let names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
        openssl(&[&server[..], &names, &["-keyout", "key.pem", "-out", "cert.pem"], &curve].concat());
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// An address that the certificate is for, and the options of `ensemble up` that serve it.
    pub(crate) fn served(&self) -> (String, String) {
        let port = free_port();
        let public = format!("https://localhost:{port}");
        let (certificate, key) = (self.file("cert.pem"), self.file("key.pem"));
        let tls = format!("--tls-listen 127.0.0.1:{port} --tls-cert {certificate} --tls-key {key}");
        (public.clone(), format!("--public-url {public} {tls}"))
    }
}

/// A server with HTTPS in addition to its plain address.
fn secure(user: &User, authority: &Authority) -> (Running, String) {
    let (public, tls) = authority.served();
    let tls: Vec<&str> = tls.split(' ').collect();
    let start = ["up", "--listen", "127.0.0.1:0", "--json", "--no-runner"];
    let (running, printed) = up_at(user, &[&start[..], &tls].concat());
    assert_eq!(printed["forOthers"], serde_json::json!([public]));
    (running, public)
}

/// A user whose computer trusts the authority.
pub(crate) fn trusting(authority: &Authority) -> User {
    User::new(None).with_variable("SSL_CERT_FILE", Box::leak(authority.file("ca.pem").into_boxed_str()))
}

#[test]
fn a_phone_is_linked_by_https_that_the_server_serves_itself() {
    let authority = Authority::new();
    let (owner, second, stranger) = (trusting(&authority), trusting(&authority), trusting(&authority));
    let (_up, public) = secure(&owner, &authority);
    assert!(owner.succeed(&["phone", &public, "--check"]).contains("accepts sign-ins"));

    // A phone refuses a certificate of an unknown authority.
    let refused = owner.command(&["phone", &public, "--check"]).env_remove("SSL_CERT_FILE").output().unwrap();
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("an authority that browsers know"), "{refused}");
    // The way is not there.
    let gone = owner.fail(&["phone", &format!("https://localhost:{}", free_port()), "--check"]);
    assert!(gone.contains("still running"), "{gone}");
    let plain = owner.fail(&["phone", "http://192.0.2.1:8080"]);
    assert!(plain.contains("is not https"), "{plain}");
    // Another server than the one that this computer uses.
    let (_other, elsewhere) = secure(&stranger, &authority);
    let other = owner.fail(&["phone", &elsewhere, "--check"]);
    assert!(other.contains("is another server"), "{other}");

    // The code leads to the address, and what is linked there belongs to the account.
    let (mut showing, address) = code_of(&owner, &["phone", &public]);
    assert!(address.starts_with(&format!("{public}/link#")), "{address}");
    let (asking, digits) = join(&second, &address);
    showing.until("new device shows: ");
    showing.answer(&digits);
    for (code, said) in [showing.end(), asking.end()] {
        assert_eq!(code, 0, "{said}");
    }
    let [there, here] = [&second, &owner].map(|user| user.json(&["whoami"]));
    assert_eq!((&there["id"], &there["device"]["role"]), (&here["id"], &"linked".into()), "{there}");
}

#[test]
fn a_server_that_does_not_know_its_address_takes_no_sign_ins_there() {
    let authority = Authority::new();
    let owner = trusting(&authority);
    let (_up, printed) = up_at(&owner, &["up", "--listen", "0.0.0.0:0", "--json", "--no-runner"]);
    let url = printed["url"].as_str().unwrap();
    let check = ["phone", &url.replace("127.0.0.1", "127.0.0.2"), "--check"];
    let refused = owner.fail(&check);
    assert!(refused.contains("ensemble up --public-url http://127.0.0.2"), "{refused}");
}

#[test]
fn certificates_that_cannot_be_used_start_nothing() {
    let (authority, other, user) = (Authority::new(), Authority::new(), User::new(None));
    let start = |certificate: &str, key: &str| {
        let listen = format!("127.0.0.1:{}", free_port());
        let plain = ["up", "--listen", "127.0.0.1:0", "--no-runner", "--public-url", "https://localhost"];
        user.fail(&[&plain[..], &["--tls-listen", &listen, "--tls-cert", certificate, "--tls-key", key]].concat())
    };
    let (certificate, key) = (authority.file("cert.pem"), authority.file("key.pem"));
    for (found, wanted) in [
        (start("/nonexistent", &key), "cannot be read"),
        (start(&key, &key), "there is no certificate"),
        (start(&certificate, &certificate), "cannot be read"),
        (start(&certificate, &other.file("key.pem")), "do not work together"),
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    assert!(!user.files().join("data").exists(), "nothing was created");
    for arguments in [["--tls-cert", "c"], ["--tls-key", "k"]] {
        assert_eq!(user.run(&[&["up"], &arguments[..]].concat()).code, 2);
    }
}

/// Programs of these names, which do this.
fn programs(all: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in all {
        program(folder.path(), name, &format!("#!/bin/sh\n{script}\n"));
    }
    folder
}

fn with(folder: &TempDir, files: &Path) -> User {
    let user = User::new(None).with_programs(folder.path());
    copy(files, &user.files());
    user
}

fn copy(from: &Path, to: &PathBuf) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn the_ways_to_https_are_shown_with_what_is_installed_first() {
    let owner = User::new(None);
    let (_up, url) = up(&owner, &["--no-runner"]);
    let port = url.rsplit(':').next().unwrap();
    let shown = owner.succeed(&["phone"]);
    // All lead to a listener where visitors have limits of their own.
    for part in [
        "tailscale serve --bg 8088\n",
        "cloudflared tunnel --url http://127.0.0.1:8088\n",
        "caddy reverse-proxy --from NAME --to 127.0.0.1:8088\n",
        "--tls-cert",
        "ensemble up --public-url https://NAME --proxy-port 8088",
        "ensemble phone https://NAME",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let caddy = programs(&[("caddy", "exit 1")]);
    let first = with(&caddy, &owner.files()).succeed(&["phone"]);
    assert!(first.contains("1. Caddy, with a domain that leads to this machine (installed here)"), "{first}");

    // Tailscale serves it already, so its address is the one that is checked.
    for port in [port, "8088"] {
        let serves = format!(
            "case \"$1\" in serve) echo '{{\"Web\":{{\"x\":{{\"Proxy\":\"http://127.0.0.1:{port}\"}}}}}}' ;; \
             status) echo '{{\"Self\":{{\"DNSName\":\"laptop.test.invalid.\"}}}}' ;; esac"
        );
        let tailscale = programs(&[("tailscale", &serves)]);
        let checked = with(&tailscale, &owner.files()).fail(&["phone"]);
        assert!(checked.contains("https://laptop.test.invalid cannot be used"), "{checked}");
    }
}
