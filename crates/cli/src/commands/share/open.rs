//! `ensemble share open`: reads a session through its public link, without an account.

use std::io::Read;

use clap::Args;
use ensemble_account::links::{Address, Visit};
use ensemble_client::Client;
use ensemble_protocol::transcript::view::{Shown, Taken, View};
use ensemble_types::ids::UserId;
use ensemble_types::links::PublicMessage;
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

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let address = match self.address.as_str() {
            "-" => std::io::read_to_string(std::io::stdin().take(ADDRESS_BYTES))?,
            given => given.to_owned(),
        };
        let address = Address::parse(address.trim()).ok_or_else(|| {
            Failure::message("This is not a complete link. A link looks like https://host/share/TOKEN#v1.KEY, including the part after the #.")
        })?;
        let client = Client::builder(&*address.server).build()?;
        let (visit, mut page) = Visit::open(client, address).await?;
        if !context.json {
            let title = visit.title(&page.session).unwrap_or_else(|| page.session.id.to_string());
            print::line(format!("{}\n", print::inline(&title)))?;
        }
        let mut reader = Reader { json: context.json, visit, view: View::default(), next: 0 };
        loop {
            for message in &page.messages {
                reader.message(message)?;
            }
            match reader.visit.after(&page).await? {
                Some(next) => page = next,
                None => return reader.print(0),
            }
        }
    }
}

/// A session as its link shows it.
struct Reader {
    json: bool,
    visit: Visit,
    view: View,
    /// The id of the first item that is not printed.
    next: u64,
}

impl Reader {
    fn message(&mut self, message: &PublicMessage) -> Result<()> {
        if !self.visit.is_hosted() {
            return self.text(message);
        }
        let opened = self.visit.signed(message);
        if self.json {
            let author = author_json(&opened.author);
            let body: Option<Value> = opened.body.and_then(|body| serde_json::from_str(&body).ok());
            return print::json(&json!({ "message": message, "author": author, "body": body }), true);
        }
        self.view.message(opened.incoming());
        self.print(MAY_CHANGE)
    }

    /// A message of a session of people.
    fn text(&self, message: &PublicMessage) -> Result<()> {
        let opened = self.visit.text(message);
        if self.json {
            return print::json(&json!({ "message": message, "body": opened.ok() }), true);
        }
        print::line(format!("#{} {}", message.seq, when::local(message.created_at)))?;
        print::line(match opened {
            Ok(body) => format!("{}\n", body.text.trim_end()),
            Err(error) => format!("({error})\n"),
        })
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
