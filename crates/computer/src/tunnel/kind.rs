//! What `ensemble up --tunnel` can be, and what it needs.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Notice;
use crate::error::{Error, Result};
use crate::tailscale::{name, shown};
use crate::{Environment, PROXY_PORT, program};

/// What makes the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Tailscale,
    Funnel,
    Cloudflared,
    Ssh(String),
}

impl Kind {
    /// What `--tunnel` was given: nothing takes what is there.
    pub fn of(typed: &[String], public_url: Option<&String>, environment: &Environment) -> Result<Self> {
        let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
        let kind = match typed[..] {
            [] if program("tailscale", environment).is_ok() => Self::Tailscale,
            [] if program("cloudflared", environment).is_ok() => Self::Cloudflared,
            [] => {
                return Err(Error::sentence(
                    "Neither `tailscale` nor `cloudflared` is on the search path. Install one of them, or use a computer with a name: \
                     `ensemble up --tunnel ssh USER@HOST --public-url https://NAME`. `ensemble phone` shows the other ways.",
                ));
            }
            ["tailscale"] => Self::Tailscale,
            ["funnel"] => Self::Funnel,
            ["cloudflared"] => Self::Cloudflared,
            // ssh would take it for an option.
            ["ssh", host] if !host.starts_with('-') && !host.is_empty() => Self::Ssh(host.to_owned()),
            _ => {
                return Err(Error::Usage(
                    "A tunnel is `tailscale`, `funnel` (Tailscale, for everyone), `cloudflared` or `ssh USER@HOST`."
                        .to_owned(),
                ));
            }
        };
        match (&kind, public_url) {
            (Self::Ssh(_), None) => Err(Error::sentence(
                "The address at which HOST serves is not named. Type `ensemble up --tunnel ssh USER@HOST --public-url https://NAME`.",
            )),
            (Self::Tailscale | Self::Funnel | Self::Cloudflared, Some(_)) => Err(Error::sentence(
                "This tunnel brings its own address. Leave out --public-url, or leave out --tunnel and lead your own to --proxy-port.",
            )),
            _ => Ok(kind),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Tailscale | Self::Funnel => "tailscale",
            Self::Cloudflared => "cloudflared",
            Self::Ssh(_) => "ssh",
        }
    }

    /// What a person should know of it before anyone comes.
    pub(super) fn warnings(&self, makes_accounts: bool) -> Vec<Notice> {
        let public = (*self != Self::Tailscale).then_some(Notice::Public { makes_accounts });
        let sees = match self {
            Self::Cloudflared => Some("Cloudflare"),
            Self::Ssh(host) => Some(host.rsplit('@').next().unwrap_or(host)),
            Self::Tailscale | Self::Funnel => None,
        };
        public.into_iter().chain(sees.map(|who| Notice::SeenBy(who.to_owned()))).collect()
    }

    /// Whether a new start has the same address.
    pub(super) fn is_permanent(&self) -> bool {
        *self != Self::Cloudflared
    }

    /// Refuses what is configured already, and says which address there will be, if that is known before.
    pub(super) async fn checked(
        &self,
        program: &Path,
        public_url: Option<&String>,
        environment: &Environment,
    ) -> Result<Option<String>> {
        match self {
            Self::Ssh(_) => Ok(public_url.cloned()),
            Self::Cloudflared => match configuration(environment) {
                Some(path) => Err(Error::sentence(format!(
                    "cloudflared makes no quick tunnel while {} exists. If that is a tunnel of yours, lead it to this server: `ensemble up \
                     --public-url https://NAME --proxy-port {PROXY_PORT}`.",
                    path.display()
                ))),
                None => Ok(None),
            },
            Self::Tailscale | Self::Funnel => {
                let serves = shown(program, &["serve", "status", "--json"], environment).await?;
                if serves.pointer("/TCP/443").is_some() {
                    return Err(Error::sentence(format!(
                        "Tailscale serves something at https of this computer already (`tailscale serve status`). Lead that to this server: \
                         `tailscale serve --bg {PROXY_PORT}` and `ensemble up --public-url https://NAME --proxy-port {PROXY_PORT}`, or end it: \
                         `tailscale serve --https=443 off`."
                    )));
                }
                let status = shown(program, &["status", "--json"], environment).await?;
                let is_running = status.pointer("/BackendState").and_then(Value::as_str) == Some("Running");
                match name(&status).filter(|_| is_running) {
                    Some(name) => Ok(Some(format!("https://{name}"))),
                    None => Err(Error::sentence("Tailscale is not connected, or has no name. Type `tailscale up`.")),
                }
            }
        }
    }

    pub(super) fn arguments(&self, port: u16, metrics: u16) -> Vec<String> {
        let target = format!("http://127.0.0.1:{port}");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Self::Tailscale => words(&["serve", "--https=443", &target]),
            Self::Funnel => words(&["funnel", "--https=443", &target]),
            Self::Cloudflared => {
                let metrics = format!("127.0.0.1:{metrics}");
                words(&["tunnel", "--no-autoupdate", "--metrics", &metrics, "--url", &target])
            }
            Self::Ssh(host) => {
                let forward = format!("127.0.0.1:{PROXY_PORT}:127.0.0.1:{port}");
                let options = ["ExitOnForwardFailure=yes", "ServerAliveInterval=15", "BatchMode=yes"];
                let mut arguments: Vec<String> = words(&["-N", "-R", &forward]);
                arguments.extend(options.into_iter().flat_map(|option| words(&["-o", option])));
                arguments.push(host.clone());
                arguments
            }
        }
    }
}

/// The configurations with which cloudflared makes no quick tunnel (Cloudflare, "TryCloudflare").
fn configuration(environment: &Environment) -> Option<PathBuf> {
    let home = environment.get("HOME").map(PathBuf::from);
    let of_home = home
        .into_iter()
        .flat_map(|home| [".cloudflared", ".cloudflare-warp", "cloudflare-warp"].map(|name| home.join(name)));
    let folders = of_home.chain(["/etc/cloudflared", "/usr/local/etc/cloudflared"].map(PathBuf::from));
    folders.flat_map(|folder| ["config.yml", "config.yaml"].map(|name| folder.join(name))).find(|path| path.exists())
}

/// A host's name, with a port.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_tunnel_is_named_with_what_it_needs() {
        let url = "https://ensemble.example.com".to_owned();
        let of = |words: &[&str], url: Option<&String>| {
            Kind::of(&typed(words), url, &Environment::new()).map_err(|error| error.to_string())
        };
        assert_eq!(of(&["funnel"], None).unwrap(), Kind::Funnel);
        assert_eq!(of(&["ssh", "me@host"], Some(&url)).unwrap(), Kind::Ssh("me@host".to_owned()));
        for (words, url, wanted) in [
            (&["ssh", "me@host"][..], None, "--public-url"),
            (&["ssh", "-oProxyCommand=x"], Some(&url), "A tunnel is"),
            (&["ssh"], Some(&url), "A tunnel is"),
            (&["ngrok"], None, "A tunnel is"),
            (&["cloudflared"], Some(&url), "brings its own address"),
        ] {
            let refused = of(words, url).unwrap_err();
            assert!(refused.contains(wanted), "{words:?}: {refused}");
        }
    }

    #[test]
    fn a_name_is_no_more_than_a_name() {
        assert!(is_name("a-b.trycloudflare.com") && is_name("localhost:8443"));
        assert!(!is_name("") && !is_name("evil.example/x") && !is_name("a@b"));
    }
}
