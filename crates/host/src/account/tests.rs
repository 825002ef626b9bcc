//! The owner's list, from a server that may be behind or lie.

use std::sync::{Arc, Mutex as StdMutex};

use ensemble_client::Credential;
use ensemble_client::devices::sign_list;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::BoxKeyPair;
use ensemble_protocol::transcript::words::May;
use ensemble_types::devices::{DeviceList, DeviceListPage, ListedDevice, Role};
use ensemble_types::time::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

#[test]
fn a_list_that_was_asked_for_before_a_sleep_is_old() {
    let before = Asked { wall: wall_clock() - Duration::from_secs(3600), ..Asked::now() };
    assert!(before.age() >= Duration::from_secs(3600), "only the wall clock has moved on");
    let turned_back = Asked { wall: wall_clock() + Duration::from_secs(3600), ..Asked::now() };
    assert!(turned_back.age() < BETWEEN_QUESTIONS);
}

/// A server that shows these lists. Each answer is one connection.
struct Server {
    url: String,
    shown: Arc<StdMutex<Vec<SignedList>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shown: Arc<StdMutex<Vec<SignedList>>> = Arc::default();
        let lists = shown.clone();
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let after = head.split_once("devices?after=").unwrap().1.split_whitespace().next().unwrap();
                let after: usize = after.parse().unwrap();
                let newer = lists.lock().unwrap().iter().skip(after).cloned().collect();
                let page = serde_json::to_string(&DeviceListPage { lists: newer, next_cursor: None }).unwrap();
                let length = page.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{page}"
                );
                client.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, shown }
    }

    fn show(&self, lists: &[&List]) {
        *self.shown.lock().unwrap() = lists.iter().map(|list| list.signed().clone()).collect();
    }
}

/// An account with a phone, which its second list has no more.
struct Account {
    primary: AccountKey,
    phone: AccountKey,
    first: List,
    second: List,
}

impl Account {
    fn new() -> Self {
        let (primary, phone) = (AccountKey::generate(), AccountKey::generate());
        let devices = vec![entry(&primary, Role::Primary), entry(&phone, Role::Linked)];
        let body = DeviceList {
            account: primary.public_key(),
            version: 1,
            prev: None,
            created: Timestamp::from_unix_seconds(1_800_000_000),
            content_epoch: 1,
            content_public_key: BoxKeyPair::of_device(&AccountKey::generate()).unwrap().public().to_text(),
            devices,
        };
        let first = List::first(&sign_list(&body, &primary).unwrap(), &primary.public_key()).unwrap();
        let second = next(&first, &primary, vec![entry(&primary, Role::Primary)]);
        Self { primary, phone, first, second }
    }
}

fn entry(key: &AccountKey, role: Role) -> ListedDevice {
    let box_key = BoxKeyPair::of_device(key).unwrap().public().to_text();
    ListedDevice { key: key.public_key(), box_key, role, machine_id: None, name: None, by: None }
}

/// The list after another one.
fn next(list: &List, primary: &AccountKey, devices: Vec<ListedDevice>) -> List {
    let body = list.body();
    let next = DeviceList {
        version: body.version + 1,
        prev: Some(list.digest_text()),
        content_epoch: body.content_epoch + 1,
        content_public_key: BoxKeyPair::of_device(&AccountKey::generate()).unwrap().public().to_text(),
        devices,
        ..body.clone()
    };
    list.next(&sign_list(&next, primary).unwrap()).unwrap()
}

/// A machine that knows the account's second list, and its server.
async fn machine(account: &Account, folder: &Path) -> (Server, Lists) {
    let server = Server::start().await;
    server.show(&[&account.first, &account.second]);
    let client = Client::builder(&server.url).credential(Credential::Bearer("t".into())).build().unwrap();
    let owner = UserId::generate();
    let lists = Lists::open(client, owner, &account.primary.public_key(), folder).await.unwrap();
    assert_eq!(lists.known().await.version, 2);
    (server, lists)
}

/// The role of this key for a command whose signer knows `said`, and whether a newer list is kept back.
async fn found(lists: &Lists, key: &AccountKey, said: &List) -> (Option<Role>, bool) {
    lists.own.lock().await.asked = None;
    let said = KnownList { version: said.version(), digest: said.digest_text() };
    let found = lists.signer((lists.owner(), &key.public_key()), None, &said).await.unwrap();
    (found.signer.role, found.list_is_withheld)
}

#[tokio::test]
async fn a_machine_obeys_the_list_that_it_knows_while_the_server_is_behind() {
    let (account, folder) = (Account::new(), tempfile::tempdir().unwrap());
    let (server, lists) = machine(&account, folder.path()).await;
    let Account { primary, phone, first, second } = &account;
    for shown in [&[first][..], &[]] {
        server.show(shown);
        assert_eq!(found(&lists, phone, first).await, (None, false), "a removed device does not come back");
        assert_eq!(found(&lists, primary, second).await, (Some(Role::Primary), false));
        assert_eq!(lists.recent_content_epoch().await, 2, "nothing is written under a key of before");
    }
    // The same after a restart of the machine, and when the lists are there again with a newer one.
    let client = Client::builder(&server.url).credential(Credential::Bearer("t".into())).build().unwrap();
    let lists = Lists::open(client, lists.owner(), &primary.public_key(), folder.path()).await.unwrap();
    assert_eq!(found(&lists, phone, first).await, (None, false));
    let tablet = AccountKey::generate();
    let third = next(second, primary, vec![entry(primary, Role::Primary), entry(&tablet, Role::Linked)]);
    assert_eq!(found(&lists, primary, &third).await, (Some(Role::Primary), true), "it is kept back until then");
    server.show(&[first, second, &third]);
    assert_eq!(found(&lists, &tablet, &third).await, (Some(Role::Linked), false));
    assert_eq!(found(&lists, primary, &third).await, (Some(Role::Primary), false));
}

#[tokio::test]
async fn a_right_that_a_removed_device_has_given_is_worth_nothing() {
    let (account, guest, folder) = (Account::new(), Account::new(), tempfile::tempdir().unwrap());
    let (server, lists) = machine(&account, folder.path()).await;
    server.show(&[&guest.first]);
    let (user, said) = (UserId::generate(), lists.known().await);
    let role = async |by: Option<&AccountKey>| {
        let account = account_digest(&guest.primary.public_key()).unwrap();
        let key = by.map(AccountKey::public_key);
        let grant = AccessGrant { user, account, may: May::Prompt, version: 1, removed: false, key_epoch: None, key };
        let found = lists.signer((user, &guest.primary.public_key()), Some(&grant), &said).await;
        found.unwrap().signer.role
    };
    assert_eq!(role(Some(&account.primary)).await, Some(Role::Primary));
    assert_eq!(role(Some(&account.phone)).await, None);
    assert_eq!(role(None).await, Some(Role::Primary), "it was given before rights named who gave them");
}

#[tokio::test]
async fn a_list_that_replaces_the_known_one_gives_no_rights() {
    let (account, folder) = (Account::new(), tempfile::tempdir().unwrap());
    let (server, lists) = machine(&account, folder.path()).await;
    let Account { primary, phone, first, second } = &account;
    let both = || vec![entry(primary, Role::Primary), entry(phone, Role::Linked)];
    let fork = next(first, primary, both());
    let longer = next(&fork, primary, both());
    for shown in [&[first, &fork][..], &[first, &fork, &longer]] {
        server.show(shown);
        assert_eq!(found(&lists, phone, &fork).await.0, None);
        assert_eq!(found(&lists, primary, second).await.0, None, "not even a device that is in both");
        assert!(lists.refreshed().await.is_err());
        assert_eq!(lists.known().await.digest, second.digest_text());
    }
    server.show(&[first, second]);
    assert_eq!(found(&lists, primary, second).await, (Some(Role::Primary), false));
}
