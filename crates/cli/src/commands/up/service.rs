//! `ensemble up --install`: everything as a service of this user, which starts with the computer.

use std::path::Path;
use std::time::Duration;

use ensemble_all_in_one::dialled;

use super::Up;
use crate::commands::DONE;
use crate::commands::install::Service;
use crate::context::{Context, answers};
use crate::environment::environment;
use crate::failure::{Failure, Result};

pub(super) const UP: &str = "up";

impl Up {
    pub(super) async fn installed(&self, context: &Context, data: &Path) -> Result {
        let server = format!("http://{}", dialled(self.listen));
        if !Service::is_installed(UP)? && answers(&server).await {
            return Err(Failure::message(format!(
                "Something answers at {server} already. If it is `ensemble up` in a terminal, end it first."
            )));
        }
        let grace = match self.no_runner {
            true => Duration::ZERO,
            false => self.runner.for_check(context)?.timing.drain_grace,
        };
        let service = Service::new(context, UP, self.as_arguments(data)?, grace)?.lingering();
        service.install(context, self.yes)?;
        Ok(DONE)
    }

    /// The options as they are typed. A service has no variables of a shell.
    fn as_arguments(&self, data: &Path) -> Result<Vec<String>> {
        let path = |path: &Path| -> Result<String> {
            let path = std::path::absolute(path)?.into_os_string().into_string();
            path.map_err(|path| Failure::message(format!("{path:?} is not valid UTF-8, so a service cannot have it.")))
        };
        let public = self.public_url.clone().or_else(|| environment().remove("PUBLIC_BASE_URL"));
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
        if self.no_runner {
            arguments.push("--no-runner".to_owned());
        } else {
            arguments.extend(self.runner.as_arguments()?);
        }
        Ok(arguments)
    }
}
