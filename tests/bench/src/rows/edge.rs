//! The edge compared with nginx, both in front of the same service.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use ensemble_testkit::poll;

use super::fixture::Fixture;
use crate::load::wrk;
use crate::machine::{Machine, Options, free_port};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const CLIENTS: u32 = 64;

pub(crate) fn against_nginx(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let edge = machine.service(
        "edge-proxy",
        &[
            ("IDENTITY_URL", &fixture.identity.public),
            ("IDENTITY_RPC_URL", &fixture.identity.internal),
            ("MACHINE_REGISTRY_URL", &fixture.registry.public),
            ("SESSION_STORE_URL", &fixture.store.public),
            ("ORCHESTRATOR_URL", "http://127.0.0.1:9"),
            ("VOICE_GATEWAY_URL", "http://127.0.0.1:9"),
            ("PUBLIC_BASE_URL", "http://127.0.0.1:8080"),
            ("LIMIT_ACCOUNT", "0"),
            ("LIMIT_ADDRESS", "0"),
        ],
    )?;
    let nginx = Nginx::start(machine, &fixture.registry.public)?;
    let env = [("TOKENS", fixture.token.as_str()), ("PATH_AND_QUERY", "/v1/machines/m")];
    let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
    let (mut our_tail, mut their_tail) = (Rounds::default(), Rounds::default());
    for _ in 0..options.rounds {
        let baseline = wrk(&nginx.url, CLIENTS, options.round, "get.lua", &env)?;
        let edge = wrk(&edge.public, CLIENTS, options.round, "get.lua", &env)?;
        ours.push(edge.per_second);
        theirs.push(baseline.per_second);
        our_tail.push(edge.p99_ms);
        their_tail.push(baseline.p99_ms);
    }
    report.versus("edge: GET through it, 64 clients", "req/s", ours, ("nginx", theirs), Target::AtLeast(0.8));
    report.versus("edge: p99 of the same", "ms", our_tail, ("nginx", their_tail), Target::AtMost(2.0));
    Ok(())
}

/// One nginx worker with keep-alive to the upstream, a usual configuration.
struct Nginx {
    child: Child,
    url: String,
}

impl Nginx {
    fn start(machine: &Machine, upstream: &str) -> Result<Self> {
        let folder = machine.scratch.path().join("nginx");
        std::fs::create_dir_all(&folder)?;
        let port = free_port()?;
        let upstream = upstream.trim_start_matches("http://");
        let config = format!(
            "daemon off; worker_processes 1; pid {0}/pid; error_log {0}/error.log; events {{ worker_connections 4096; }}\n\
             http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; \
             uwsgi_temp_path {0}/u; scgi_temp_path {0}/s; keepalive_requests 1000000;\n\
             upstream service {{ server {upstream}; keepalive 128; keepalive_requests 1000000; }}\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://service; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; }} }} }}\n",
            folder.display()
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, config)?;
        let child = Command::new("nginx")
            .arg("-e")
            .arg(folder.join("error.log"))
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("nginx is not installed (Debian: nginx)")?;
        let nginx = Self { child, url: format!("http://127.0.0.1:{port}") };
        machine.runtime.block_on(async {
            let limit = std::time::Duration::from_secs(10);
            let listens = poll(limit, async || reqwest::get(&nginx.url).await.ok()).await;
            listens.map(drop).context("nginx does not listen after 10 s")
        })?;
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // On TERM the master ends its worker. After KILL the worker would continue.
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}
