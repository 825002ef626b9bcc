//! What anybody can have the edge write to its log.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use ensemble_testkit::{free_address, free_port};

use crate::raw::{Raw, SOON};

/// Killed when it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_malformed_request_is_no_error_of_the_edge() {
    let (public, internal) = (SocketAddr::from(([127, 0, 0, 1], free_port())), free_address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ensemble-edge-proxy"));
    command.env_clear().envs([("INTERNAL_TOKEN", "internal"), ("LOG_FORMAT", "json"), ("WORKERS", "1")]);
    command.env("PUBLIC_LISTEN", public.to_string()).env("INTERNAL_LISTEN", internal);
    let mut program = Program(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    ensemble_testkit::eventually(SOON, async || Raw::connect_or_refused(public).await.is_some()).await;
    for bytes in ["G\u{1}T / HTTP/1.1\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
    {
        let mut raw = Raw::connect(public).await;
        raw.send(bytes).await;
        assert_eq!(raw.answer().await.status, 400);
        // It closes after it has written the line, if it writes one.
        tokio::time::timeout(SOON, raw.until_closed()).await.unwrap();
    }
    program.0.kill().unwrap();
    let mut log = String::new();
    program.0.stdout.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("actix_server::builder"), "the log is read: {log}");
    assert!(!log.contains("\"level\":\"ERROR\""), "{log}");
}
