//! `ensemble share link`: read access for everyone who has the link. The key is in the fragment of the link,
//! which browsers never send to a server.

use std::time::Duration;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::links::NewLink;
use ensemble_account::sessions::Named;
use ensemble_types::time::Timestamp;
use serde_json::json;

use crate::complete;
use crate::context::{Context, now};
use crate::failure::Result;
use crate::print;

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// When the link expires: a duration (30m, 12h, 7d) or a time (2026-12-31T00:00:00Z), within a year
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Expiry>,
    /// How often the link may be opened
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    max_uses: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum Expiry {
    After(Duration),
    At(Timestamp),
}

impl Link {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let id = self.session.find(me).await?;
        let expires_at = self.expires.map(|expiry| match expiry {
            Expiry::After(time) => now().plus(time),
            Expiry::At(time) => time,
        });
        let NewLink { address, link, is_first } = me.create_link(id, (expires_at, self.max_uses)).await?;
        if context.json {
            return print::json(&json!({ "address": address, "link": link }), false);
        }
        print::line(&address)?;
        if !is_first {
            print::note("The previous link no longer works.");
        }
        print::note(
            "Anyone who has this link can read the session. Store it now: it cannot be shown again, because the server does not know its \
             key.",
        );
        Ok(())
    }
}

fn expiry(text: &str) -> Result<Expiry, String> {
    if let Ok(at) = text.parse() {
        return Ok(Expiry::At(at));
    }
    ensemble_plan::duration(text)
        .map(Expiry::After)
        .ok_or_else(|| "must be like 30m, 12h, 7d or 2026-12-31T00:00:00Z".to_owned())
}
