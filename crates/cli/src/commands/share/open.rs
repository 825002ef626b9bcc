//! `ensemble share open`: reads a session through its public link, without an account.

use std::io::Read;

use clap::Args;
use ensemble_account::sessions::{Card, body};
use ensemble_client::{Client, Error, Window, idempotency_key};
use ensemble_protocol::seal::{self, KeyRing, LinkSecret, Purpose, open_metadata};
use ensemble_protocol::transcript::body::Writer;
use ensemble_protocol::transcript::view::{Author, Incoming, Shown, Taken, View};
use ensemble_protocol::transcript::{BadBody, Envelope};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::links::{PublicMessage, PublicSession};
use ensemble_types::problem::Code;
use serde_json::{Value, json};

use crate::commands::attach::{MAY_CHANGE, author_json, print_item};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;
use crate::when;

/// Longer than any address.
const ADDRESS_BYTES: u64 = 8 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Open {
    /// The complete link, including the part after the # (`-`: standard input, so that other users cannot see it)
    address: String,
}

/// What an address says.
struct Address {
    server: String,
    token: String,
    secret: LinkSecret,
    /// The key of the machine that hosts the session.
    machine: Option<String>,
}

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let address = match self.address.as_str() {
            "-" => std::io::read_to_string(std::io::stdin().take(ADDRESS_BYTES))?,
            given => given.to_owned(),
        };
        let Address { server, token, secret, machine } = parse(address.trim()).ok_or_else(|| {
            Failure::message("This is not a complete link. A link looks like https://host/share/TOKEN#v1.KEY, including the part after the #.")
        })?;
        let client = Client::builder(server).build()?;
        let window = Window { after: Some(0), limit: Some(500), before: None };
        let mut page = client.open_link(&token, window, &idempotency_key()).await?;
        check(machine.as_deref(), &page.session)?;
        let id = page.session.id;
        let sealed = page.encrypted_key.take().ok_or_else(|| {
            Failure::message(
                "This link was created without a key, so the session cannot be decrypted. Ask for a new link.",
            )
        })?;
        let ring = secret.open(&sealed, id).map_err(|error| Failure::Seal("The link's key".to_owned(), error))?;
        if !context.json {
            let title = title(&ring, &page.session, machine.as_deref());
            print::line(format!("{}\n", print::inline(&title.unwrap_or_else(|| id.to_string()))))?;
        }
        let mut reader = Reader { json: context.json, session: id, ring, machine, view: View::default(), next: 0 };
        loop {
            for message in &page.messages {
                reader.message(message)?;
            }
            let Some(last) = page.messages.last().map(|message| message.seq).filter(|_| page.has_more) else {
                return reader.print(0);
            };
            let window = Window { after: Some(last), limit: Some(500), before: None };
            page = client.link_page(&token, &page.view_token, window).await.map_err(|error: Error| {
                if error.is(Code::LinkNotFound) {
                    Failure::message("The link was deleted while it was being read.")
                } else {
                    error.into()
                }
            })?;
            check(reader.machine.as_deref(), &page.session)?;
        }
    }
}

/// The link of a machine's session names the machine. A server that calls it a session of people would have texts shown that no machine
/// has signed.
fn check(machine: Option<&str>, session: &PublicSession) -> Result<()> {
    match (machine, session.hosted) {
        (Some(_), false) => Err(Failure::message(
            "The server says that no machine hosts this session, but the link names one. Do not trust it.",
        )),
        (None, true) => Err(Failure::message(
            "This link does not say which machine hosts the session, so what it has said cannot be checked. Ask for a new link.",
        )),
        _ => Ok(()),
    }
}

/// The title, as the machine that the link names has signed it. Everybody who may write has the key and could have given another one.
fn title(ring: &KeyRing, session: &PublicSession, machine: Option<&str>) -> Option<String> {
    let signed = open_metadata(ring, (session.id, session.metadata_version), &session.metadata).ok()?;
    serde_json::from_str::<Card>(signed.body_of(machine?)?).ok()?.title
}

/// A session as its link shows it.
struct Reader {
    json: bool,
    session: SessionId,
    ring: KeyRing,
    /// `None`: a session of people, whose texts are not signed.
    machine: Option<String>,
    view: View,
    /// The id of the first item that is not printed.
    next: u64,
}

impl Reader {
    fn message(&mut self, message: &PublicMessage) -> Result<()> {
        let Some(machine) = &self.machine else { return self.text(message) };
        let (incoming, body) = self.signed(message, machine);
        if self.json {
            let author = author_json(&incoming.author);
            return print::json(&json!({ "message": message, "author": author, "body": body }), true);
        }
        self.view.message(incoming);
        self.print(MAY_CHANGE)
    }

    /// A message of a session of people.
    fn text(&self, message: &PublicMessage) -> Result<()> {
        let opened = body(&self.ring, self.session, &message.content);
        if self.json {
            return print::json(&json!({ "message": message, "body": opened.ok() }), true);
        }
        print::line(format!("#{} {}", message.seq, when::local(message.created_at)))?;
        print::line(match opened {
            Ok(body) => format!("{}\n", body.text.trim_end()),
            Err(error) => format!("({error})\n"),
        })
    }

    /// Who has signed a message, and its body. Without an account no device list can be read, so a person is who the message says it is.
    fn signed(&self, message: &PublicMessage, machine: &str) -> (Incoming, Option<Value>) {
        let seq = u64::try_from(message.seq).unwrap_or_default();
        let unsigned = |why: String| {
            let nothing = Err(BadBody::Malformed("it is not signed".to_owned()));
            (Incoming { seq, author: Author::Nobody(why), digest: String::new(), message: nothing }, None)
        };
        let opened = match seal::open(&self.ring, Purpose::Message(self.session), &message.content) {
            Ok(opened) => opened,
            Err(error) => return unsigned(error.to_string()),
        };
        let envelope = match Envelope::open(self.session, &opened) {
            Ok(envelope) => envelope,
            Err(why) => return unsigned(why.to_string()),
        };
        let said = envelope.message();
        let author = if envelope.key == machine {
            Author::Host
        } else if said.as_ref().is_ok_and(|said| said.content.writer() == Writer::Host) {
            return unsigned("not signed by the session's machine".to_owned());
        } else {
            Author::Person { user: envelope.user, key: envelope.key.clone(), removed_in: None }
        };
        let body = serde_json::from_str(&envelope.body).ok();
        (Incoming { seq, author, digest: envelope.digest(), message: said }, body)
    }

    /// Prints all but the newest `held` items. What a person has sent is shown when the machine has answered it: it has looked at their
    /// device list.
    fn print(&mut self, held: usize) -> Result<()> {
        let new = self.view.items().len().saturating_sub(held);
        let first = self.next;
        for item in self.view.items().take(new).filter(|item| item.id >= first) {
            self.next = item.id + 1;
            let is_open = matches!(
                &item.shown,
                Shown::Prompt(_, Taken::NotYet) | Shown::Answer(_, Taken::NotYet) | Shown::Control(_, Taken::NotYet)
            );
            if !is_open {
                print_item(item, true, shortened)?;
            }
        }
        Ok(())
    }
}

/// The beginning of an id: without an account names are not known.
fn shortened(user: UserId) -> String {
    format!("{:.8}…", user.to_string())
}

/// Splits `https://host/prefix/share/TOKEN#v1.KEY` or `…#v1.KEY.MACHINE`.
fn parse(address: &str) -> Option<Address> {
    let (place, fragment) = address.split_once('#')?;
    let (server, token) = place.rsplit_once("/share/")?;
    let secret = LinkSecret::from_fragment(fragment).ok()?;
    let machine = fragment.split('.').nth(2).map(str::to_owned);
    Some(Address { server: server.to_owned(), token: token.trim_end_matches('/').to_owned(), secret, machine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let secret = LinkSecret::generate();
        let host = ensemble_protocol::AccountKey::generate().public_key();
        for host in [None, Some(host.as_str())] {
            let address = secret.address("http://127.0.0.1:8080/share/abc", host);
            assert!(host.is_none_or(|host| address.ends_with(&format!(".{host}"))), "{address}");
            let parsed = parse(&address).unwrap();
            assert_eq!((parsed.server.as_str(), parsed.token.as_str()), ("http://127.0.0.1:8080", "abc"));
            assert_eq!((parsed.secret.fragment(), parsed.machine.as_deref()), (secret.fragment(), host));
        }
        assert!(parse(&format!("{}.", secret.address("http://h/share/abc", None))).is_none());
        for bad in
            ["", "abc", "http://h/share/abc", "http://h/share/abc#", "http://h/share/abc#v1.AAAA", "http://h/x#v1.AAAA"]
        {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
