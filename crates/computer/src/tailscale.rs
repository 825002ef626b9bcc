//! What the program of Tailscale says of this computer.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::tunnel::{is_name, variables};
use crate::{Environment, PROXY_PORT, program};

/// A program that shows its state answers within this time.
const SHOWS_WITHIN: Duration = Duration::from_secs(10);

/// The address at which Tailscale serves this server already, if it does.
pub async fn serves(server: &str, environment: &Environment) -> Option<String> {
    let program = program("tailscale", environment).ok()?;
    let serves = shown(&program, &["serve", "status", "--json"], environment).await.ok()?.to_string();
    let (port, proxy) = (server.rsplit(':').next()?, PROXY_PORT.to_string());
    [port, &proxy].iter().any(|port| serves.contains(&format!(":{port}\""))).then_some(())?;
    name(&shown(&program, &["status", "--json"], environment).await.ok()?).map(|name| format!("https://{name}"))
}

/// The name of this computer in its network.
pub(crate) fn name(status: &Value) -> Option<&str> {
    let name = status.pointer("/Self/DNSName")?.as_str()?.trim_end_matches('.');
    is_name(name).then_some(name)
}

/// What the program prints as JSON of its state.
pub(crate) async fn shown(program: &Path, arguments: &[&str], environment: &Environment) -> Result<Value> {
    let failed = |why: String| {
        Error::sentence(format!("`{} {}` failed: {}", program.display(), arguments.join(" "), why.trim()))
    };
    let late =
        |_| Error::sentence(format!("{} did not answer within {} s.", program.display(), SHOWS_WITHIN.as_secs()));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables(environment)).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(SHOWS_WITHIN, command.output()).await.map_err(late)??;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}
