//! `ensemble up --install`: everything as a service of this user, which starts with the computer.

use std::path::Path;
use std::time::Duration;

use ensemble_all_in_one::dialled;
use ensemble_computer::service::is_installed;

use super::Up;
use crate::commands::DONE;
use crate::commands::install::{install, service};
use crate::context::{Context, answers};
use crate::environment::environment;
use crate::failure::{Failure, Result};

pub(super) const UP: &str = "up";
/// Variables that decide who may come, and that have no option.
const OF_THE_SHELL: [&str; 7] = [
    "REGISTRATION",
    "IDENTITY_REGISTRATION",
    "PUBLIC_ORIGINS",
    "IDENTITY_PUBLIC_ORIGINS",
    "EDGE_PROXY_PUBLIC_BASE_URL",
    "TRUSTED_PROXIES",
    "EDGE_PROXY_TRUSTED_PROXIES",
];

impl Up {
    pub(super) async fn installed(&self, context: &Context, data: &Path) -> Result {
        if let Some(set) =
            OF_THE_SHELL.into_iter().find(|name| environment().get(*name).is_some_and(|value| !value.is_empty()))
        {
            return Err(Failure::message(format!(
                "{set} is set, and a service has no variables of your shell. Unset it first."
            )));
        }
        if self
            .tunnel
            .as_ref()
            .is_some_and(|words| words.is_empty() || words.first().is_some_and(|word| word == "cloudflared"))
        {
            return Err(Failure::message(
                "A service needs a tunnel whose address stays: `--tunnel tailscale`, `funnel`, or `ssh USER@HOST` with --public-url.",
            ));
        }
        if self.listen.port() == 0 {
            return Err(Failure::message("A service needs an address that stays: choose a port with --listen."));
        }
        let server = format!("http://{}", dialled(self.listen));
        if !is_installed(UP, &environment())? && answers(&server).await {
            return Err(Failure::message(format!(
                "Something answers at {server} already. If it is `ensemble up` in a terminal, end it first."
            )));
        }
        let grace = match self.no_runner {
            true => Duration::ZERO,
            false => self.runner.for_check(context)?.timing.drain_grace,
        };
        let mut service = service(context, UP, self.as_arguments(data)?, grace)?;
        service.lingers = true;
        install(&service, context, self.yes)?;
        Ok(DONE)
    }

    /// The options as they are typed. A service has no variables of a shell.
    fn as_arguments(&self, data: &Path) -> Result<Vec<String>> {
        let path = |path: &Path| -> Result<String> {
            let path = std::path::absolute(path)?.into_os_string().into_string();
            path.map_err(|path| Failure::message(format!("{path:?} is not valid UTF-8, so a service cannot have it.")))
        };
        let variable = || environment().remove("PUBLIC_BASE_URL").filter(|_| self.tunnel.is_none());
        let public = self.public_url.clone().or_else(variable);
        let mut options = vec![("--listen", Some(self.listen.to_string())), ("--data", Some(path(data)?))];
        options.push(("--public-url", public.filter(|url| !url.is_empty())));
        options.push(("--proxy-port", self.proxy_port.map(|port| port.to_string())));
        for (name, file) in [("--tls-cert", &self.tls_cert), ("--tls-key", &self.tls_key)] {
            options.push((name, file.as_deref().map(path).transpose()?));
        }
        options.push(("--tls-listen", self.tls_cert.is_some().then(|| self.tls_listen.to_string())));
        let mut arguments = vec![UP.to_owned()];
        for (name, value) in options {
            arguments.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        arguments
            .extend(self.tunnel.iter().flat_map(|words| std::iter::once("--tunnel".to_owned()).chain(words.clone())));
        if self.no_runner {
            arguments.push("--no-runner".to_owned());
        } else {
            arguments.extend(self.runner.as_arguments()?);
        }
        Ok(arguments)
    }
}
