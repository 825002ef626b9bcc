//! `ensemble token`: prints a token, for curl, `/docs` and runners on other machines.

use std::time::Duration;

use clap::Args;
use ensemble_types::accounts::CreateMachineToken;
use serde_json::json;

use super::DONE;
use crate::context::{Context, now};
use crate::failure::Result;
use crate::machines::Machines;
use crate::print;
use crate::when;
use secrecy::ExposeSecret;

/// A token that expires earlier is replaced, so that there is time to use it.
const LONG_ENOUGH: Duration = Duration::from_secs(30 * 60);

/// Prints your token, which is valid for up to an hour: curl -H "Authorization: Bearer $(ensemble token)" …
/// With --machine it creates a token that can only act as the runner of that machine. A token is a secret.
#[derive(Debug, Args)]
pub(crate) struct Token {
    /// Create a token for the runner of the machine with this name, ref or id
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// How long the machine's token is valid: like 30m, 12h or 30d, at most 90d [default: 90d]
    #[arg(long, value_name = "TIME", value_parser = lifetime, requires = "machine")]
    expires: Option<Duration>,
}

impl Token {
    pub(crate) async fn run(self, context: &Context) -> Result {
        match &self.machine {
            Some(machine) => for_machine(context, machine, self.expires).await?,
            None => of_user(context).await?,
        }
        Ok(DONE)
    }
}

async fn of_user(context: &Context) -> Result<()> {
    let mut token = context.me().await?.client.sign_in().await?;
    if token.expires_at.since(now()) < LONG_ENOUGH {
        token = context.me_with_new_token().await?.client.sign_in().await?;
    }
    let text = token.token.expose_secret();
    if context.json {
        return print::json(&json!({ "token": text, "userId": token.user_id, "expiresAt": token.expires_at }), false);
    }
    print::line(text)
}

async fn for_machine(context: &Context, machine: &str, lifetime: Option<Duration>) -> Result<()> {
    let me = context.me().await?;
    let machines = Machines::load(&me).await?;
    let machine = machines.find(machine)?;
    let expires_in_seconds = lifetime.map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
    let request = CreateMachineToken { machine_id: machine.clone(), expires_in_seconds };
    let created = me.client.create_machine_token(&request).await?;
    if context.json {
        return print::json(&created, false);
    }
    print::line(&created.token)?;
    print::note(format!(
        "Valid until {}. It cannot be shown again. On the machine: ENSEMBLE_SERVER={} ENSEMBLE_MACHINE_ID={machine} \
         ENSEMBLE_MACHINE_TOKEN=… ensemble runner",
        when::local(created.expires_at),
        me.client.base(),
    ));
    Ok(())
}

fn lifetime(text: &str) -> Result<Duration, String> {
    ensemble_plan::duration(text).ok_or_else(|| "must be like 30m, 12h or 30d".to_owned())
}
