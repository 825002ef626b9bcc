//! `ensemble recovery`: makes recovery words, and `ensemble login --recover` uses them.
//!
//! The words are shown once, in a terminal, and typed without being shown. They are never an argument, in a file or in a log.

mod typed;

use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use ensemble_account::devices::{self, List, Own, box_of, change};
use ensemble_account::kept_lists;
use ensemble_account::names::{self, next_list};
use ensemble_account::settings::Occasion;
use ensemble_account::{Account, Lock, removal};
use ensemble_client::devices::Names;
use ensemble_client::{Client, Credential, Error, Known};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{ContentRing, RecoveryWords, fingerprint};
use ensemble_types::devices::{DeviceKind, DeviceList, ListedDevice, Role};
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use rand::seq::SliceRandom;

use super::DONE;
use super::devices::settle;
use super::link::check_primary;
use crate::confirm;
use crate::context::{Context, now};
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
        check_primary(&me)?;
        let words = RecoveryWords::generate();
        show(&words)?;
        if !typed_again(&words)? {
            return Err(Failure::message("These are not the words. Nothing was changed. Run the command again."));
        }
        let key = words.key().map_err(unusable)?;
        let mut next = me.own().list.successor(now());
        let before = next.devices.len();
        next.devices.retain(|device| device.role != Role::Recovery);
        let mut contents = me.own().contents.clone();
        let is_replaced = next.devices.len() < before;
        if is_replaced {
            contents = begin_epoch(&mut next, &contents)?;
        }
        let box_key = words.box_key().map_err(unusable)?.public().to_text();
        next.devices.push(ListedDevice {
            key: key.public_key(),
            box_key,
            role: Role::Recovery,
            machine_id: None,
            name: None,
            by: None,
        });
        let (list, names) = next_list(&me.own().list, next, me.names().await?, &me.key)?;
        if is_replaced {
            removal::begin_removal(&context.home, me.client.origin(), list.version())?;
        }
        let change = change(&list, &contents, [&key], names)?;
        kept_lists::send(&context.home, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await?;
        if is_replaced {
            let me = Account::new(&context.home, me.client.clone(), me.key.clone(), me.id, Own { list, contents });
            me.finish_removal().await?;
        }
        if context.json {
            print::json(&serde_json::json!({ "success": true }), false)?;
        } else {
            print::line("Your account can be recovered with these words. Keep the paper where nobody else finds it.")?;
        }
        Ok(DONE)
    }
}

fn unusable(error: ensemble_protocol::seal::SealError) -> Failure {
    Failure::Seal("The recovery words".to_owned(), error)
}

/// The next content epoch, in a list that is not signed yet.
pub(crate) fn begin_epoch(next: &mut DeviceList, contents: &ContentRing) -> Result<ContentRing> {
    let contents = contents.next().map_err(|error| Failure::Seal("The content keys".to_owned(), error))?;
    next.content_epoch = next.content_epoch.saturating_add(1);
    next.content_public_key = devices::public(&contents)?.to_text();
    Ok(contents)
}

fn show(words: &RecoveryWords) -> Result<()> {
    if !io::stderr().is_terminal() {
        return Err(Failure::message(
            "Recovery words are shown in a terminal only, so that no file and no log has them. Run the command in one.",
        ));
    }
    let words = words.words().map_err(unusable)?;
    print::note("\nWrite these 24 words on paper, in this order. They are shown only now.\n");
    for row in 0..6 {
        let cells = (0..4).filter_map(|column| {
            let at = row + 6 * column;
            words.get(at).map(|word| format!("{:2}. {word:9}", at + 1))
        });
        print::note(format!("  {}", cells.collect::<Vec<_>>().join(" ").trim_end()));
    }
    print::note("\nWho has them has your account. Without them and without a primary device, nobody can help you.\n");
    Ok(())
}

/// Whether some of the words were written down.
fn typed_again(words: &RecoveryWords) -> Result<bool> {
    let words = words.words().map_err(unusable)?;
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
    let lock = context.home.lock_account().await?;
    if context.home.key()?.is_some() {
        return Err(Failure::message(format!(
            "There is a key of an account already, in {}. Move it to a safe place first.",
            context.home.key_path().display()
        )));
    }
    context.home.check_writable()?;
    let words = typed::words()?;
    let recovery = words.key().map_err(unusable)?;
    let client = client.with_credential(Credential::Device(recovery.clone()));
    let token = client.sign_in().await.map_err(|error| {
        if error.is_not_found() {
            Failure::message("No account has these recovery words. Newer words replace the ones from before.")
        } else {
            error.into()
        }
    })?;
    let (list, contents) = opened(&client, &words, &recovery, token.user_id).await?;
    // The words do not say which account they belong to, so the person does.
    let fingerprint = fingerprint(&list.body().account).map_err(unusable)?;
    print::note(format!("The account's fingerprint is {fingerprint}, as `ensemble whoami` showed it."));
    if io::stdin().is_terminal() && !confirm::change("Is it your account")? {
        return Err(Failure::message("Nothing was changed. If the words are yours, do not trust this server."));
    }
    // The key of a command that was killed, unless it is listed already: then there is nothing more to be signed.
    let key = context.home.pending(DeviceKind::Recovery).map_or_else(AccountKey::generate, |(key, _)| key);
    if list.device(&key.public_key()).is_some() {
        return recovered(context, client, key, &lock, (&list, token.user_id), Gone::One(None)).await;
    }
    context.home.keep_pending(&key, DeviceKind::Recovery, None)?;
    let mut next = list.successor(now());
    let mut names = names::of(&context.home, &client, token.user_id, &list).await?;
    let is_one_gone = remove_lost(&names, &mut next, &recovery)?;
    let contents = if is_one_gone { begin_epoch(&mut next, &contents)? } else { contents };
    let box_key = box_of(&key)?.public().to_text();
    let mut entry =
        ListedDevice { key: key.public_key(), box_key, role: Role::Primary, machine_id: None, name: None, by: None };
    names.keep(&next);
    names.give(&mut entry, &context.home.computer().device);
    next.devices.push(entry);
    let before = list;
    let (list, names) = next_list(&before, next, names, &recovery)?;
    if is_one_gone {
        removal::begin_removal(&context.home, client.origin(), list.version())?;
    }
    let change = change(&list, &contents, [&key], names)?;
    let changed = kept_lists::send(&context.home, &client, (&key, token.user_id), &list, (&change, Vec::new())).await;
    if matches!(&changed, Err(ensemble_account::Error::Client(error)) if error.is(Code::Conflict)) {
        // The key of the killed command was listed and removed meanwhile. The next try makes another one.
        context.home.forget_pending()?;
    }
    changed?;
    let gone = if is_one_gone { Gone::One(Some(Box::new(before))) } else { Gone::None };
    recovered(context, client, key, &lock, (&list, token.user_id), gone).await
}

/// Whether a device was removed.
enum Gone {
    None,
    /// With the list in which it was, where that is known.
    One(Option<Box<List>>),
}

/// Keeps the key of the new primary device, and signs in with it.
async fn recovered(
    context: &Context,
    client: Client,
    key: AccountKey,
    lock: &Lock,
    (list, user): (&List, UserId),
    gone: Gone,
) -> Result<Account> {
    let client = client.with_credential(Credential::Device(key.clone()));
    let token = client.sign_in().await?;
    context.home.remember_list(client.origin(), user, list)?;
    context.home.remember(&client, &key, &token, Occasion::Login)?;
    // The key comes last: a computer that has one knows its account.
    context.home.store_key(&key, lock)?;
    context.home.forget_pending()?;
    let own = devices::own(&context.home, &client, &key, user).await?;
    let me = Account::new(&context.home, client, key, user, own);
    if let Gone::One(before) = gone {
        if let Some(list) = before {
            let own = Own { list: *list, contents: me.own().contents.clone() };
            Account::new(&context.home, me.client.clone(), me.key.clone(), user, own).see_all_titles().await;
        }
        settle().await;
        me.finish_removal().await?;
    }
    Ok(me)
}

/// The account's newest list and contents, as far as they can be checked with the words alone: the words are in the list, and
/// what is sealed to them opens. The person compares the fingerprint.
async fn opened(
    client: &Client,
    words: &RecoveryWords,
    recovery: &AccountKey,
    user: ensemble_types::ids::UserId,
) -> Result<(List, ContentRing)> {
    let Some(shown) = client.devices().await?.list else {
        return Err(Failure::message("The server shows no devices of this account."));
    };
    let account = List::remembered(&shown).map_err(Error::from)?.body().account.clone();
    let list = client.newest_list(user, Known::Account(&account)).await?;
    let boxed = words.box_key().map_err(unusable)?;
    let is_ours = |list: &List| {
        let entry = list.device(&recovery.public_key());
        entry.is_some_and(|entry| entry.role == Role::Recovery && entry.box_key == boxed.public().to_text())
    };
    let Some(list) = list.filter(is_ours) else {
        return Err(Failure::message(
            "The server shows devices without these words. Nothing was changed. Do not trust it.",
        ));
    };
    let sealed = client.content_ring().await?;
    let contents = ContentRing::open(&sealed.sealed, &boxed, &recovery.public_key(), &list)
        .map_err(|error| Failure::Seal("The content keys".to_owned(), error))?;
    Ok((list, contents))
}

/// Asks about each other device whether it is lost. True when one is removed that could open contents.
fn remove_lost(names: &Names, next: &mut DeviceList, recovery: &AccountKey) -> Result<bool> {
    let mut is_one_gone = false;
    for device in next.devices.clone() {
        let is_gone = next.devices.iter().all(|entry| entry.key != device.key);
        if device.key == recovery.public_key() || is_gone {
            continue;
        }
        let key: String = device.key.chars().take(8).collect();
        let name = match (names.get(&device.key), &device.name) {
            (Some(name), _) => name,
            (None, Some(_)) => "a device to which the server gives another name",
            (None, None) => "a device without a name",
        };
        print::note(format!("{name} ({key}), {}", device.role.as_str()));
        if confirm::change("Is it lost? Remove it from the account")? {
            let before = next.devices.len();
            // A machine goes with the computer on which it is.
            next.devices.retain(|entry| entry.key != device.key && entry.by.as_ref() != Some(&device.key));
            is_one_gone |= next.devices.len() < before && device.role.opens_contents();
        }
    }
    Ok(is_one_gone)
}
