//! `ensemble devices remove` in an account with thousands of sessions, behind an edge with its default limits: how long it takes, and
//! whether the account's other programs are refused meanwhile.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_client::devices::{Names, sign_list};
use ensemble_client::{Known, idempotency_key};
use ensemble_protocol::AccountKey;
use ensemble_protocol::lists::{List, proof_text};
use ensemble_protocol::seal::{Binding, BoxKeyPair, ContentRing, KeyRing, Metadata, seal_metadata, seal_ring};
use ensemble_types::devices::{ChangeDevices, ListedDevice, Role};
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::CreateSession;
use ensemble_types::text::Blob;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::StatusCode;
use secrecy::ExposeSecret;

use super::fixture::Fixture;
use super::live_host::Computer;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const SESSIONS: usize = 5_000;
const AT_ONCE: usize = 8;
/// The edge counts the requests of an account over this time.
const QUOTA_IS_BACK: Duration = Duration::from_secs(60);
/// The time between two calls of the account's other program.
const EVERY: Duration = Duration::from_millis(500);

pub(crate) fn of_a_device(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let free = edge(machine, &fixture, &[("LIMIT_ACCOUNT", "0"), ("LIMIT_ADDRESS", "0")])?;
    let computer = Computer::start(machine, &free.public, "removal", 1)?;
    let ids = machine.runtime.block_on(sessions(&computer))?;
    let first = *ids.first().context("no session")?;
    drop(free);
    let limited = edge(machine, &fixture, &[])?;
    let (mut took, mut refused, mut rekeyed) = (Rounds::default(), Rounds::default(), Rounds::default());
    for round in 0..options.rounds.min(3) {
        if round > 0 {
            std::thread::sleep(QUOTA_IS_BACK);
        }
        let lost = machine.runtime.block_on(add_device(&computer))?;
        let token = machine.runtime.block_on(computer.another_client()?.sign_in())?.token;
        let is_over = AtomicBool::new(false);
        let begun = Instant::now();
        let (output, refusals) = std::thread::scope(|threads| {
            let calls = call(&limited.public, token.expose_secret(), first, &is_over);
            let calls = threads.spawn(|| machine.runtime.block_on(calls));
            let output = computer.ensemble(&["devices", "remove", &lost, "--yes", "--json"]);
            is_over.store(true, SeqCst);
            let refusals = calls.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            anyhow::Ok((output?, refusals))
        })?;
        took.push(begun.elapsed().as_secs_f64());
        refused.push(refusals as f64);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        rekeyed.push(said.get("rekeyed").and_then(serde_json::Value::as_f64).context("no count")?);
    }
    let name = format!("devices remove with {SESSIONS} sessions");
    report.alone(&name, "s", took, Target::AtMost(30.0));
    report.alone(&format!("{name}: calls of another program that were refused"), "", refused, Target::AtMost(0.0));
    report.alone(&format!("{name}: sessions with a new key at once"), "", rekeyed, Target::None);
    Ok(())
}

fn edge(machine: &Machine, fixture: &Fixture<'_>, more: &[(&str, &str)]) -> Result<Service> {
    let mut variables = vec![
        ("IDENTITY_URL", fixture.identity.public.as_str()),
        ("MACHINE_REGISTRY_URL", &fixture.registry.public),
        ("SESSION_STORE_URL", &fixture.store.public),
        ("ORCHESTRATOR_URL", "http://127.0.0.1:9"),
        ("VOICE_GATEWAY_URL", "http://127.0.0.1:9"),
    ];
    variables.extend(more);
    machine.service_on(fixture.edge_port, "edge-proxy", &variables)
}

/// The account's list and its content keys.
async fn own(computer: &Computer) -> Result<(List, ContentRing)> {
    let account = computer.key.public_key();
    let list = computer.client.newest_list(computer.user, Known::Account(&account)).await?.context("no device list")?;
    let sealed = computer.client.content_ring().await?.sealed;
    let contents = ContentRing::open(&sealed, &BoxKeyPair::of_device(&computer.key)?, &account, &list)?;
    Ok((list, contents))
}

/// Makes the sessions, each sealed as a client seals it.
async fn sessions(computer: &Computer) -> Result<Vec<SessionId>> {
    let (list, contents) = own(computer).await?;
    let (content, epoch) = (contents.public()?, ContentEpoch::new(list.body().content_epoch)?);
    let one = |number: usize| {
        let content = &content;
        async move {
            let (id, ring) = (SessionId::generate(), KeyRing::generate());
            let body = format!("{{\"title\":\"number {number}\"}}");
            let metadata = Metadata { body, user: computer.user, admin: None, of_machine: None };
            let request = CreateSession {
                id: Some(id),
                machine_id: None,
                metadata: Blob::new(seal_metadata(&ring, (id, 1), metadata, &computer.key)?)?,
                encryption_key: Blob::new(seal_ring(
                    &ring,
                    content,
                    Binding::Session { session: id, owner: computer.user },
                    &computer.key,
                )?)?,
                content_epoch: Some(epoch),
                tag: None,
            };
            computer.client.create_session(&request, &idempotency_key()).await?;
            Ok::<_, anyhow::Error>(id)
        }
    };
    stream::iter(0..SESSIONS).map(one).buffered(AT_ONCE).try_collect().await
}

/// Adds a device to the account's list. Returns its key.
pub(super) async fn add_device(computer: &Computer) -> Result<String> {
    let (list, contents) = own(computer).await?;
    let key = AccountKey::generate();
    let mut entry = ListedDevice {
        key: key.public_key(),
        box_key: BoxKeyPair::of_device(&key)?.public().to_text(),
        role: Role::Linked,
        machine_id: None,
        name: None,
        by: None,
    };
    let given = computer.client.devices().await?.devices.into_iter().filter_map(|device| {
        let name = ensemble_types::devices::DeviceName {
            salt: Blob::new(device.name_salt?).ok()?,
            name: ensemble_types::text::Text::new(device.name?).ok()?,
        };
        Some((device.public_key, name))
    });
    let mut names = Names::opened(list.body(), given.collect());
    names.give(&mut entry, "lost phone");
    let mut next = list.successor(list.body().created.plus(Duration::from_secs(1)));
    next.devices.push(entry);
    let names = names.for_next(&mut next);
    let list = list.next(&sign_list(&next, &computer.key)?)?;
    let account = &list.body().account;
    let mut change = ChangeDevices { list: Some(list.signed().clone()), names, ..ChangeDevices::default() };
    for device in list.openers() {
        change.sealed.insert(device.key.clone(), Blob::new(contents.seal_to(device, account)?)?);
    }
    let entry = list.device(&key.public_key()).context("it is not listed")?;
    change.proofs.insert(key.public_key(), Blob::new(key.sign(&proof_text(account, entry)))?);
    computer.client.change_devices(&change).await?;
    Ok(key.public_key())
}

/// Makes the calls of a page and a terminal of the same account until the removal is over. Returns how many calls were refused.
async fn call(edge: &str, token: &str, id: SessionId, is_over: &AtomicBool) -> Result<usize> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut tick = tokio::time::interval(EVERY);
    let (mut count, mut refused) = (0_usize, 0);
    while !is_over.load(SeqCst) {
        tick.tick().await;
        count += 1;
        let path = if count % 10 == 0 { "/v1/sessions".to_owned() } else { format!("/v1/sessions/{id}") };
        let status = http.get(format!("{edge}{path}")).bearer_auth(token).send().await?.status();
        match status {
            StatusCode::TOO_MANY_REQUESTS => refused += 1,
            status => ensure!(status.is_success(), "{path}: {status}"),
        }
    }
    ensure!(count > 0, "no call was made");
    Ok(refused)
}
