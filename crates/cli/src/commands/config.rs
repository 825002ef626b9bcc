//! `ensemble config`: shows the settings and where they are, and chooses the default server.

use clap::{Args, Subcommand, ValueEnum};
use ensemble_account::Account;
use serde_json::json;

use super::DONE;
use crate::context::{ChosenBy, Context, anonymous};
use crate::failure::Result;
use crate::print;

/// Shows the settings, and where they are.
#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Choose the server that commands use unless --server names another
    ///
    /// An address where you have not signed in must be a new one of the
    /// server that you use: your account moves there, with all that this computer knows of it
    Server {
        /// The server's address, as in https://ensemble.example.com
        url: String,
    },
    /// Choose whether the terminal rings and notifies when an agent asks something on a screen of a session
    Bell {
        #[arg(value_enum)]
        bell: Bell,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bell {
    On,
    Off,
}

impl Config {
    pub(crate) async fn run(self, context: &Context) -> Result {
        match self.part {
            Some(Part::Server { url }) => choose(context, url).await?,
            Some(Part::Bell { bell }) => {
                context.home.change_settings(|settings| settings.is_quiet = bell == Bell::Off)?;
                if context.json {
                    print::json(&json!({ "bell": bell == Bell::On }), false)?;
                } else {
                    print::line(match bell {
                        Bell::On => "The terminal rings when an agent asks.",
                        Bell::Off => "The terminal does not ring. Its title says when an agent asks.",
                    })?;
                }
            }
            None => show(context)?,
        }
        Ok(DONE)
    }
}

async fn choose(context: &Context, url: String) -> Result<()> {
    let client = anonymous(url.clone())?;
    let known = context.home.settings()?.accounts.remove(client.origin());
    let is_signed_in = known.is_some_and(|account| account.signed_in);
    let from = anonymous(context.server()?.0)?.origin().to_owned();
    let moved = Account::moved(&context.home, client, &from).await?;
    context.home.change_settings(|settings| settings.server = Some(url.clone()))?;
    if context.json {
        return print::json(&json!({ "server": url }), false);
    }
    print::line(format!("Commands now use {url}."))?;
    match moved {
        Some(me) => print::line(format!("Your account {} has moved there from {from}.", me.id)),
        None if is_signed_in => Ok(()),
        None => print::line("You are not signed in there. Run `ensemble login`."),
    }
}

fn show(context: &Context) -> Result<()> {
    let (server, by) = context.server()?;
    let by = match by {
        ChosenBy::Option => "--server",
        ChosenBy::Environment => "ENSEMBLE_SERVER",
        ChosenBy::Login => "the default server",
        ChosenBy::Up => "of `ensemble up` on this machine",
        ChosenBy::Default => "unless another is chosen",
    };
    let (home, key) = (context.home.path(), context.home.key_path());
    let settings = context.home.settings()?;
    if context.json {
        let value = json!({
            "home": home, "key": key, "hasKey": key.exists(), "server": server, "serverFrom": by,
            "defaultServer": settings.server, "accounts": settings.accounts, "machines": settings.machines,
        });
        return print::json(&value, false);
    }
    print::line(format!("directory  {}", home.display()))?;
    print::line(format!("key        {}{}", key.display(), if key.exists() { "" } else { " (none yet)" }))?;
    print::line(format!("server     {server} ({by})"))?;
    for (origin, account) in &settings.accounts {
        let state = if account.signed_in { "signed in" } else { "signed out" };
        print::line(format!("account    {} at {origin} ({state})", account.user_id))?;
    }
    for (origin, machine) in &settings.machines {
        print::line(format!("machine    {machine} at {origin}"))?;
    }
    print::line("\nENSEMBLE_HOME chooses another directory. `ensemble config server URL` changes the default server.")
}
