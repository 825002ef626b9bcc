//! `ensemble share link` and `open`: read access for everyone who has the link. The key is in the fragment of the link,
//! which browsers never send to a server.

use std::io::Read;
use std::time::Duration;

use clap::Args;
use ensemble_client::seal::LinkSecret;
use ensemble_client::{Client, Error, Window, idempotency_key};
use ensemble_types::links::CreateLink;
use ensemble_types::problem::Code;
use ensemble_types::text::Blob;
use ensemble_types::time::Timestamp;
use serde_json::json;

use crate::commands::session::Named;
use crate::complete;
use crate::context::{Context, Me, now};
use crate::failure::{Failure, Result};
use crate::print;
use crate::vault::{body, card};
use crate::when;

/// Longer than any address.
const ADDRESS_BYTES: u64 = 8 * 1024;

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

#[derive(Debug, Args)]
pub(crate) struct Open {
    /// The complete link, including the part after the # (`-`: standard input, so that other users cannot see it)
    address: String,
}

#[derive(Clone, Copy, Debug)]
enum Expiry {
    After(Duration),
    At(Timestamp),
}

impl Link {
    pub(crate) async fn run(self, context: &Context, me: &Me) -> Result<()> {
        let id = self.session.find(me).await?;
        let (session, ring) = me.writable(context, id).await?;
        let secret = LinkSecret::generate();
        let sealed =
            secret.seal(&ring, session.id).map_err(|error| Failure::Seal("The link's key".to_owned(), error))?;
        let request = CreateLink {
            expires_at: self.expires.map(|expiry| match expiry {
                Expiry::After(time) => now().plus(time),
                Expiry::At(time) => time,
            }),
            max_uses: self.max_uses,
            encrypted_key: Some(
                Blob::new(sealed).map_err(|error| Failure::message(format!("The link's key {error}.")))?,
            ),
        };
        let (link, first) = me.client.create_link(session.id, &request).await?;
        let host = session.machine_id.as_ref().filter(|_| session.hosted);
        let host = host.and_then(|machine| {
            me.own.list.body().devices.iter().find(|device| device.machine_id.as_ref() == Some(machine))
        });
        let address = secret.address(&link.url, host.map(|device| device.key.as_str()));
        if context.json {
            return print::json(&json!({ "address": address, "link": link }), false);
        }
        print::line(&address)?;
        if !first {
            print::note("The previous link no longer works.");
        }
        print::note(
            "Everyone who has this link can read the session. Store it now: it cannot be shown again, because the server does not know its key.",
        );
        Ok(())
    }
}

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let address = match self.address.as_str() {
            "-" => std::io::read_to_string(std::io::stdin().take(ADDRESS_BYTES))?,
            given => given.to_owned(),
        };
        let (server, token, secret) = parse(address.trim()).ok_or_else(|| {
            Failure::message("This is not a complete link. A link looks like https://host/share/TOKEN#v1.KEY, including the part after the #.")
        })?;
        let client = Client::builder(server).build()?;
        let window = Window { after: Some(0), limit: Some(500), before: None };
        let mut view = client.open_link(&token, window, &idempotency_key()).await?;
        let id = view.session.id;
        let sealed = view.encrypted_key.take().ok_or_else(|| {
            Failure::message(
                "This link was created without a key, so the session cannot be decrypted. Ask for a new link.",
            )
        })?;
        let ring = secret.open(&sealed, id).map_err(|error| Failure::Seal("The link's key".to_owned(), error))?;
        if !context.json {
            let title = card(&ring, id, &view.session.metadata).ok().and_then(|card| card.title);
            print::line(format!("{}\n", print::inline(&title.unwrap_or_else(|| id.to_string()))))?;
        }
        loop {
            for message in &view.messages {
                let opened = body(&ring, id, &message.content);
                if context.json {
                    print::json(&json!({ "message": message, "body": opened.ok() }), true)?;
                    continue;
                }
                print::line(format!("#{} {}", message.seq, when::local(message.created_at)))?;
                print::line(match opened {
                    Ok(body) => format!("{}\n", body.text.trim_end()),
                    Err(error) => format!("({error})\n"),
                })?;
            }
            let Some(last) = view.messages.last().map(|message| message.seq).filter(|_| view.has_more) else {
                return Ok(());
            };
            let window = Window { after: Some(last), limit: Some(500), before: None };
            view = client.link_page(&token, &view.view_token, window).await.map_err(|error: Error| {
                if error.is(Code::LinkNotFound) {
                    Failure::message("The link was deleted while it was being read.")
                } else {
                    error.into()
                }
            })?;
        }
    }
}

/// Splits `https://host/prefix/share/TOKEN#v1.KEY` into server, token and secret.
fn parse(address: &str) -> Option<(String, String, LinkSecret)> {
    let (place, fragment) = address.split_once('#')?;
    let (server, token) = place.rsplit_once("/share/")?;
    let secret = LinkSecret::from_fragment(fragment).ok()?;
    Some((server.to_owned(), token.trim_end_matches('/').to_owned(), secret))
}

fn expiry(text: &str) -> Result<Expiry, String> {
    if let Ok(at) = text.parse() {
        return Ok(Expiry::At(at));
    }
    crate::plan::duration(text)
        .map(Expiry::After)
        .ok_or_else(|| "must be like 30m, 12h, 7d or 2026-12-31T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let secret = LinkSecret::generate();
        let host = ensemble_client::AccountKey::generate().public_key();
        for host in [None, Some(host.as_str())] {
            let address = secret.address("http://127.0.0.1:8080/share/abc", host);
            assert!(host.is_none_or(|host| address.ends_with(&format!(".{host}"))), "{address}");
            let (server, token, parsed) = parse(&address).unwrap();
            assert_eq!((server.as_str(), token.as_str()), ("http://127.0.0.1:8080", "abc"));
            assert_eq!(parsed.fragment(), secret.fragment());
        }
        assert!(parse(&format!("{}.", secret.address("http://h/share/abc", None))).is_none());
        for bad in
            ["", "abc", "http://h/share/abc", "http://h/share/abc#", "http://h/share/abc#v1.AAAA", "http://h/x#v1.AAAA"]
        {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
