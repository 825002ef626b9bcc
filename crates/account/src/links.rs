//! Public links: read access to a session for everyone who has the complete link. The key is in the fragment of the link, which browsers
//! never send to a server.

use ensemble_client::{Client, Window, idempotency_key};
use ensemble_protocol::seal::{self, KeyRing, LinkSecret, MessageBody, Purpose, SealError, open_metadata};
use ensemble_protocol::transcript::Envelope;
use ensemble_protocol::transcript::body::Writer;
use ensemble_protocol::transcript::view::Author;
use ensemble_types::ids::SessionId;
use ensemble_types::links::{CreateLink, Link, PublicMessage, PublicSession, PublicView};
use ensemble_types::problem::Code;
use ensemble_types::text::Blob;
use ensemble_types::time::Timestamp;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::live::Opened;
use crate::sessions::{Card, body, host_of};

/// How many messages one call reads.
const PAGE: u32 = 500;

/// A link that was just made. Its address is known to this program alone.
pub struct NewLink {
    pub address: String,
    pub link: Link,
    /// There was none before.
    pub is_first: bool,
}

impl Account {
    /// Creates or replaces the public link of a session.
    pub async fn create_link(
        &self,
        id: SessionId,
        (expires_at, max_uses): (Option<Timestamp>, Option<i64>),
    ) -> Result<NewLink> {
        let (session, ring) = self.writable(id).await?;
        self.refuse_demo(&session).await?;
        let secret = LinkSecret::generate();
        let sealed = secret.seal(&ring, session.id).map_err(closed)?;
        let sealed = Blob::new(sealed).map_err(|error| Error::Form(format!("The link's key {error}.")))?;
        let request = CreateLink { expires_at, max_uses, encrypted_key: Some(sealed) };
        let (link, is_first) = self.client.create_link(session.id, &request).await?;
        let own = self.own();
        let host = host_of(&session).and_then(|machine| {
            own.list.body().devices.iter().find(|device| device.machine_id.as_ref() == Some(machine))
        });
        let address = secret.address(&link.url, host.map(|device| device.key.as_str()));
        Ok(NewLink { address, link, is_first })
    }
}

/// What a complete link says.
pub struct Address {
    pub server: String,
    token: String,
    secret: LinkSecret,
    /// The key of the machine that hosts the session.
    machine: Option<String>,
}

impl Address {
    /// Splits `https://host/prefix/share/TOKEN#v1.KEY` or `…#v1.KEY.MACHINE`.
    pub fn parse(address: &str) -> Option<Self> {
        let (place, fragment) = address.split_once('#')?;
        let (server, token) = place.rsplit_once("/share/")?;
        let secret = LinkSecret::from_fragment(fragment).ok()?;
        let machine = fragment.split('.').nth(2).map(str::to_owned);
        Some(Self { server: server.to_owned(), token: token.trim_end_matches('/').to_owned(), secret, machine })
    }
}

/// A session that is read through its link, without an account.
pub struct Visit {
    client: Client,
    token: String,
    session: SessionId,
    ring: KeyRing,
    /// `None`: a session of people, whose texts are not signed.
    machine: Option<String>,
}

impl Visit {
    /// Opens the link, which is one use of it, and reads the first messages.
    pub async fn open(client: Client, address: Address) -> Result<(Self, PublicView)> {
        let Address { token, secret, machine, .. } = address;
        let mut page = client.open_link(&token, after(0), &idempotency_key()).await?;
        check(machine.as_deref(), &page.session)?;
        let session = page.session.id;
        let sealed = page.encrypted_key.take().ok_or(Error::LinkWithoutKey)?;
        let ring = secret.open(&sealed, session).map_err(closed)?;
        Ok((Self { client, token, session, ring, machine }, page))
    }

    /// The messages after those of a page, if there are more.
    pub async fn after(&self, page: &PublicView) -> Result<Option<PublicView>> {
        let Some(last) = page.messages.last().filter(|_| page.has_more) else { return Ok(None) };
        let next = self.client.link_page(&self.token, &page.view_token, after(last.seq)).await;
        let next =
            next.map_err(|error| if error.is(Code::LinkNotFound) { Error::LinkDeleted } else { error.into() })?;
        check(self.machine.as_deref(), &next.session)?;
        Ok(Some(next))
    }

    /// The title, as the machine that the link names has signed it. Every writer has the key and could have given another one.
    pub fn title(&self, session: &PublicSession) -> Option<String> {
        let signed = open_metadata(&self.ring, (session.id, session.metadata_version), &session.metadata).ok()?;
        serde_json::from_str::<Card>(signed.body_of(self.machine.as_deref()?)?).ok()?.title
    }

    /// Whether a machine hosts the session, so that its messages are signed.
    pub fn is_hosted(&self) -> bool {
        self.machine.is_some()
    }

    /// A message of a session of people.
    pub fn text(&self, message: &PublicMessage) -> Result<MessageBody, SealError> {
        body(&self.ring, self.session, &message.content)
    }

    /// Who has signed a message, and its body. Without an account no device list can be read, so a person is who the message says it is.
    pub fn signed(&self, message: &PublicMessage) -> Opened {
        let unsigned = |why| Opened::unsigned(message.seq, why);
        let opened = match seal::open(&self.ring, Purpose::Message(self.session), &message.content) {
            Ok(opened) => opened,
            Err(error) => return unsigned(error.to_string()),
        };
        let envelope = match Envelope::open(self.session, &opened) {
            Ok(envelope) => envelope,
            Err(why) => return unsigned(why.to_string()),
        };
        let said = envelope.message();
        let author = if Some(&envelope.key) == self.machine.as_ref() {
            Author::Host
        } else if said.as_ref().is_ok_and(|said| said.content.writer() == Writer::Host) {
            return unsigned("not signed by the session's machine".to_owned());
        } else {
            Author::Person { user: envelope.user, key: envelope.key.clone(), removed_in: None }
        };
        let seq = u64::try_from(message.seq).unwrap_or_default();
        Opened { seq, author, body: Some(envelope.body), message: said }
    }
}

fn after(seq: i64) -> Window {
    Window { after: Some(seq), limit: Some(PAGE), before: None }
}

/// The link of a machine's session names the machine. A server that calls it a session of people would have texts shown that no machine
/// has signed.
fn check(machine: Option<&str>, session: &PublicSession) -> Result<()> {
    match (machine, session.hosted) {
        (Some(_), false) => Err(Error::LinkOfMachine),
        (None, true) => Err(Error::LinkOfNoMachine),
        _ => Ok(()),
    }
}

fn closed(error: SealError) -> Error {
    Error::Seal("The link's key".to_owned(), error)
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
            let parsed = Address::parse(&address).unwrap();
            assert_eq!((parsed.server.as_str(), parsed.token.as_str()), ("http://127.0.0.1:8080", "abc"));
            assert_eq!((parsed.secret.fragment(), parsed.machine.as_deref()), (secret.fragment(), host));
        }
        assert!(Address::parse(&format!("{}.", secret.address("http://h/share/abc", None))).is_none());
        for bad in
            ["", "abc", "http://h/share/abc", "http://h/share/abc#", "http://h/share/abc#v1.AAAA", "http://h/x#v1.AAAA"]
        {
            assert!(Address::parse(bad).is_none(), "{bad}");
        }
    }
}
