//! What comes before others can call, and why nothing came of it.

use std::net::SocketAddr;
use std::path::Path;

use ensemble_all_in_one::{Config, Stack};

use crate::context::{Context, anonymous, answers};
use crate::failure::{Failure, Result};

pub(super) const OF_REGISTRATION: [&str; 2] = ["REGISTRATION", "IDENTITY_REGISTRATION"];

/// Makes the person's account where there is none, before anyone else can call.
pub(super) async fn first_account(context: &Context, data: &Path, listen: SocketAddr, new_account: bool) -> Result<()> {
    if crate::data::is_of(context, data)? && !new_account {
        return Ok(());
    }
    let wanted = context.wanted_by_up(new_account)?;
    let here = SocketAddr::from(([127, 0, 0, 1], listen.port()));
    let mut config = Config::new(data, if listen.ip().is_loopback() { listen } else { here });
    config.vars.extend(OF_REGISTRATION.map(|name| (name.to_owned(), "open".to_owned())));
    let stack = match Stack::start(config).await {
        Ok(stack) => stack,
        Err(error) => return Err(not_started(context, &format!("{error:#}.")).await),
    };
    let begun = async { context.begin(anonymous(stack.url().to_owned())?, wanted).await };
    let begun = begun.await.and_then(|begun| crate::data::remember(context, &begun.me, data));
    stack.stop().await;
    begun
}

/// Why the services did not start. Most often they run already.
pub(super) async fn not_started(context: &Context, why: &str) -> Failure {
    let local = context.home.settings().ok().and_then(|settings| settings.local_server);
    let is_taken = why.contains("has this database open") || why.contains("Address already in use");
    match local.filter(|_| is_taken) {
        Some(server) if answers(&server).await => Failure::message(format!(
            "Ensemble is already up at {server}. Use that one, or end it first with Ctrl-C where it runs. A second one needs its \
             own directory: --data DIR, and another --listen."
        )),
        _ => Failure::message(why),
    }
}
