//! `ensemble recovery`: makes recovery words, and `ensemble login --recover` uses them.
//!
//! The words are shown once, in a terminal, and typed without being shown. They are never an argument, in a file or in a log.

mod typed;

use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use ensemble_account::devices::RecoveryWords;
use ensemble_account::devices::recover::{Recovering, Recovery as Begun};
use ensemble_account::{Account, Error};
use ensemble_client::Client;
use rand::seq::SliceRandom;

use super::DONE;
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// How many words have to be typed again.
const ASKED: usize = 3;

/// Makes 24 words that bring your account back when all your devices are lost. Write them on paper. New words replace the
/// ones from before.
#[derive(Debug, Args)]
pub(crate) struct Recovery {}

impl Recovery {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        me.check_primary()?;
        let words = RecoveryWords::generate();
        show(&words)?;
        if !typed_again(&words)? {
            return Err(Failure::message("These are not the words. Nothing was changed. Run the command again."));
        }
        me.set_recovery_words(&words).await?;
        if context.json {
            print::json(&serde_json::json!({ "success": true }), false)?;
        } else {
            print::line(
                "Your account can be recovered with these words. Keep the paper where no one else can find it.",
            )?;
        }
        Ok(DONE)
    }
}

fn listed(words: &RecoveryWords) -> Result<Vec<&'static str>> {
    Ok(words.words().map_err(|error| Error::Seal("The recovery words".to_owned(), error))?)
}

fn show(words: &RecoveryWords) -> Result<()> {
    if !io::stderr().is_terminal() {
        return Err(Failure::message(
            "Recovery words are shown in a terminal only, so that no file and no log has them. Run the command in one.",
        ));
    }
    let words = listed(words)?;
    print::note("\nWrite these 24 words on paper, in this order. They are shown only now.\n");
    for row in 0..6 {
        let cells = (0..4).filter_map(|column| {
            let at = row + 6 * column;
            words.get(at).map(|word| format!("{:2}. {word:9}", at + 1))
        });
        print::note(format!("  {}", cells.collect::<Vec<_>>().join(" ").trim_end()));
    }
    print::note(
        "\nAnyone who has them has your account. Without them and without a primary device, no one can help you.\n",
    );
    Ok(())
}

/// Whether some of the words were written down.
fn typed_again(words: &RecoveryWords) -> Result<bool> {
    let words = listed(words)?;
    let mut places: Vec<usize> = (0..words.len()).collect();
    places.shuffle(&mut rand::rngs::OsRng);
    places.truncate(ASKED);
    places.sort_unstable();
    for at in places {
        let Some(word) = words.get(at) else { return Ok(false) };
        if !is_typed(at + 1, word)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Asks for a word until it is right, or was wrong too often: what is on paper may be good although it was mistyped.
fn is_typed(number: usize, word: &str) -> Result<bool> {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        print::ask(format!("Type word {number}:"))?;
        let mut typed = String::new();
        if io::stdin().lock().read_line(&mut typed)? == 0 {
            return Ok(false);
        }
        let typed = typed.trim().to_lowercase();
        if typed == word {
            return Ok(true);
        }
        let is_known = if RecoveryWords::has_word(&typed) { "" } else { ", and it is no recovery word" };
        print::note(format!("That is not word {number}{is_known}. Compare your paper with the words above."));
    }
    Ok(false)
}

/// Makes this computer a primary device of the account that the words belong to.
pub(crate) async fn recover(context: &Context, client: Client) -> Result<Account> {
    let begun = Begun::begin(&context.home).await?;
    let found = begun.find(&client, &typed::words()?).await?;
    // The words do not say which account they belong to, so the person does.
    let fingerprint = found.fingerprint()?;
    print::note(format!("The account's fingerprint is {fingerprint}, as `ensemble whoami` showed it."));
    if io::stdin().is_terminal() && !confirm::change("Is it your account")? {
        return Err(Failure::message("Nothing was changed. If the words are yours, do not trust this server."));
    }
    let mut recovering = found.agreed().await?;
    remove_lost(&mut recovering)?;
    Ok(recovering.finish().await?)
}

/// Asks about each other device whether it is lost.
fn remove_lost(recovering: &mut Recovering) -> Result<()> {
    recovering.remove_lost(|device, name| {
        let key: String = device.key.chars().take(8).collect();
        let name = match (name, &device.name) {
            (Some(name), _) => name,
            (None, Some(_)) => "a device to which the server gives another name",
            (None, None) => "a device without a name",
        };
        print::note(format!("{name} ({key}), {}", device.role.as_str()));
        confirm::change("Is it lost? Remove it from the account")
    })
}
