//! A host for tests, and a server that has one of its sessions and can be restored.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use ensemble_client::devices::{List, sign_list};
use ensemble_client::{Client, Credential, Retry};
use ensemble_process::Limits;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{Binding, BoxKeyPair, KeyRing, seal_ring};
use ensemble_types::devices::{DeviceList, DeviceListPage, ListedDevice, Role};
use ensemble_types::ids::{MachineId, MessageId, SessionId, UserId};
use ensemble_types::messages::{AppendMessage, AppendMessages, AppendedMessages, Message, MessagePage};
use ensemble_types::problem::{Code, Problem};
use ensemble_types::refs::Ref;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify, mpsc, watch};

use crate::account::Lists;
use crate::drain::Drain;
use crate::hints::Wakers;
use crate::keys::Keys;
use crate::look::Looks;
use crate::room::Room;
use crate::served::Servers;
use crate::settings::{Settings, Timing};
use crate::tasks::Sessions;
use crate::{Host, clock, place, titles};

/// The server. Each answer is one connection.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) session: SessionId,
    owner: UserId,
    lists: Arc<StdMutex<Vec<ensemble_types::devices::SignedList>>>,
    /// It takes no new key of the session.
    pub(crate) refuses_keys: Arc<AtomicBool>,
    /// The session's newest key for the host, and its epoch.
    key: Arc<StdMutex<(u32, Option<String>)>>,
    messages: Arc<StdMutex<Vec<Message>>>,
    /// The requests so far: each with its line (`GET /v1/devices`) and its body.
    pub(crate) requests: watch::Sender<Vec<(String, Value)>>,
}

/// A host with a session, which has the first key.
pub(crate) struct Double {
    pub(crate) host: Arc<Host>,
    pub(crate) server: Server,
    pub(crate) ring: KeyRing,
    pub(crate) primary: AccountKey,
    _folder: TempDir,
}

impl Double {
    pub(crate) async fn new() -> Self {
        let (folder, machine) = (tempfile::tempdir().unwrap(), MachineId::generate());
        let own = folder.path().join("host");
        std::fs::create_dir(&own).unwrap();
        let (primary, key) = (AccountKey::generate(), AccountKey::generate());
        let list = list(&primary);
        let server = Server {
            session: SessionId::generate(),
            owner: UserId::generate(),
            lists: Arc::new(StdMutex::new(vec![list.signed().clone()])),
            refuses_keys: Arc::default(),
            key: Arc::new(StdMutex::new((1, None))),
            messages: Arc::default(),
            requests: watch::Sender::default(),
        };
        let url = server.clone().listen().await;
        let client = Client::builder(url).credential(Credential::Bearer("t".into())).retry(Retry::never());
        let client = client.build().unwrap();
        let settings = Settings {
            machine,
            environment: BTreeMap::new(),
            process: ensemble_process::Settings {
                guard: Vec::new(),
                limits: Limits::default(),
                allow_new_privileges: false,
                term_grace: Duration::ZERO,
                leftover_grace: Duration::ZERO,
                temporary: None,
            },
            agents: Box::new(|name| Err(format!("there is no agent {name}"))),
            max_agents: None,
            timing: Timing { look_within: Duration::from_secs(60), ..Timing::default() },
        };
        let account = primary.public_key();
        let lists = Lists::open(client.clone(), server.owner, &account, &own).await.unwrap();
        let host = Host {
            client,
            boxed: Arc::new(BoxKeyPair::of_device(&key).unwrap()),
            key,
            owner: server.owner,
            lists: Arc::new(lists),
            name: place::Name::new(&own).unwrap(),
            sessions: own.join("sessions"),
            drain: Drain::default(),
            wakers: Wakers::default(),
            hosted: Sessions::default(),
            room: Room::new(1),
            looks: Looks::open(&settings.environment, &own, &[], settings.timing.look_within).unwrap(),
            servers: Servers::open(&settings, own.clone()).await,
            environments: StdMutex::new(HashMap::new()),
            unended: Arc::default(),
            used: Notify::new(),
            begun: mpsc::channel(1).0,
            rested: mpsc::channel(1).0,
            starting: Mutex::default(),
            settings: Arc::new(settings),
            sessions_only: false,
        };
        Self { host: Arc::new(host), server, ring: KeyRing::generate(), primary, _folder: folder }
    }

    /// The session's keys, with this ring as the newest.
    pub(crate) async fn keys(&self, ring: &KeyRing) -> Keys {
        let Host { client, settings, key, boxed, lists, sessions, .. } = &*self.host;
        let session = self.server.session;
        let sealed = Keys::seal_own(ring, (key, boxed), (session, &settings.machine), 1).unwrap();
        let said = titles::Said::open(titles::Card::new("claude", sessions), sessions);
        let server = (client.clone(), settings.machine.clone());
        Keys::open(
            server,
            (key.clone(), boxed.clone()),
            lists.clone(),
            (session, said, settings.timing.rekey_grace),
            &sealed,
        )
        .await
        .unwrap()
    }

    /// A program of the owner gives the session and the host this key.
    pub(crate) fn give(&self, ring: &KeyRing) {
        let Host { settings, boxed, .. } = &*self.host;
        let binding = Binding::Host { session: self.server.session, machine: &settings.machine, content_epoch: 1 };
        let sealed = seal_ring(ring, &boxed.public(), binding, &self.primary).unwrap();
        *self.server.key.lock().unwrap() = (ring.epoch(), Some(sealed));
    }

    /// The owner's list has another content key from now on, as after the removal of a device, and the host has that list.
    pub(crate) async fn remove_a_device(&self) {
        let last = self.server.lists.lock().unwrap().last().cloned().unwrap();
        let mut next = List::first(&last, &self.primary.public_key()).unwrap().successor(clock());
        next.content_epoch += 1;
        next.content_public_key = box_key(&AccountKey::generate());
        self.server.lists.lock().unwrap().push(sign_list(&next, &self.primary).unwrap());
        self.host.lists.reread().await;
    }
}

fn box_key(key: &AccountKey) -> String {
    BoxKeyPair::of_device(key).unwrap().public().to_text()
}

fn list(primary: &AccountKey) -> List {
    let device = ListedDevice {
        key: primary.public_key(),
        box_key: box_key(primary),
        role: Role::Primary,
        machine_id: None,
        name: None,
        by: None,
    };
    let body = DeviceList {
        account: primary.public_key(),
        version: 1,
        prev: None,
        created: clock(),
        content_epoch: 1,
        content_public_key: box_key(&AccountKey::generate()),
        devices: vec![device],
    };
    List::first(&sign_list(&body, primary).unwrap(), &primary.public_key()).unwrap()
}

impl Server {
    /// A backup with this many messages is restored.
    pub(crate) fn restore(&self, messages: usize) {
        self.messages.lock().unwrap().truncate(messages);
    }

    /// People write until there are `upto` messages.
    pub(crate) fn fill(&self, upto: usize) {
        let mut messages = self.messages.lock().unwrap();
        while messages.len() < upto {
            let message = json!({ "content": "of a person", "localId": format!("p{}", messages.len()) });
            let stored = self.stored(messages.len(), serde_json::from_value(message).unwrap());
            messages.push(stored);
        }
    }

    fn stored(&self, before: usize, message: AppendMessage) -> Message {
        Message {
            id: MessageId::generate(),
            seq: i64::try_from(before).unwrap() + 1,
            local_id: message.local_id.into_string(),
            content: message.content.into_string(),
            sender_id: self.owner,
            sender_machine_id: None,
            key_epoch: message.key_epoch,
            created_at: clock(),
        }
    }

    fn append(&self, new: AppendMessage) -> Message {
        let mut messages = self.messages.lock().unwrap();
        let stored = self.stored(messages.len(), new);
        if let Some(known) = messages.iter().find(|known| known.local_id == stored.local_id) {
            return known.clone();
        }
        messages.push(stored.clone());
        stored
    }

    fn page(&self, query: &HashMap<&str, i64>) -> MessagePage {
        let messages = self.messages.lock().unwrap();
        let limit = usize::try_from(query["limit"]).unwrap();
        let of = |after: i64, before: i64| {
            let fits = move |message: &&Message| message.seq > after && message.seq < before;
            messages.iter().filter(fits).cloned()
        };
        let page: Vec<Message> = match query.get("after") {
            Some(after) => of(*after, i64::MAX).take(limit).collect(),
            None => of(0, query.get("before").copied().unwrap_or(i64::MAX)).rev().take(limit).collect(),
        };
        let has_more = page.iter().all(|message| message.seq > 1) && page.len() == limit;
        let last_seq = messages.last().map_or(0, |message| message.seq);
        MessagePage { messages: page, has_more, next_before: None, next_after: None, last_seq }
    }

    /// As the server has it: with the first key, or the one that a program of the owner has given it.
    pub(crate) fn session(&self) -> Value {
        let (epoch, host_key) = self.key.lock().unwrap().clone();
        json!({
            "id": self.session, "ref": Ref::of(&self.session), "ownerId": self.owner, "hosted": true,
            "metadata": "m", "metadataVersion": 1, "agentState": null, "agentStateVersion": 0,
            "status": "active", "endedAt": null, "archived": false, "online": true, "thinking": false,
            "lastActiveAt": null, "lastSeq": self.messages.lock().unwrap().len(), "accessLevel": "edit",
            "keyEpoch": epoch, "hostKey": host_key, "rekeyNeeded": false, "createdAt": clock(), "updatedAt": clock(),
        })
    }

    async fn listen(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(self.clone().answer(client));
            }
        });
        url
    }

    async fn answer(self, mut client: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = client.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head
            .split_once("content-length: ")
            .map_or(0, |(_, rest)| rest.split_whitespace().next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        client.read_exact(&mut body).await.unwrap();
        let line: Vec<&str> = head.split_whitespace().take(2).collect();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.requests.send_modify(|requests| requests.push((line.join(" "), body.clone())));
        let is_refused = body.get("encryptionKey").is_some() && self.refuses_keys.load(Ordering::Relaxed);
        let (kind, status, answer) = match self.answer_to(line[0], line[1], body) {
            Some(_) if is_refused => {
                let problem = Problem::new(Code::Forbidden, "No new key is taken.");
                ("application/problem+json", 403, serde_json::to_string(&problem).unwrap())
            }
            Some(answer) => ("application/json", if line[0] == "post" { 201 } else { 200 }, answer.to_string()),
            // The stream of hints, which ends at once.
            None => ("text/event-stream", 200, ": here\n\n".to_owned()),
        };
        let length = answer.len();
        let head = format!("HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
        // A test may have ended.
        let _ = client.write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes()).await;
    }

    fn answer_to(&self, method: &str, target: &str, body: Value) -> Option<Value> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query: HashMap<&str, i64> = query.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
        let answer = match (method, path) {
            (_, "/v1/events") => return None,
            (_, "/v1/sessions") => json!({ "sessions": [], "nextCursor": null }),
            (_, path) if path.ends_with("/devices") => {
                let lists =
                    self.lists.lock().unwrap().iter().skip(usize::try_from(query["after"]).unwrap()).cloned().collect();
                serde_json::to_value(DeviceListPage { lists, next_cursor: None }).unwrap()
            }
            ("post", path) if path.ends_with("/batch") => {
                let several: AppendMessages = serde_json::from_value(body).unwrap();
                let messages = several.messages.into_iter().map(|message| self.append(message)).collect();
                serde_json::to_value(AppendedMessages { messages }).unwrap()
            }
            ("post", _) => serde_json::to_value(self.append(serde_json::from_value(body).unwrap())).unwrap(),
            ("get", path) if path.ends_with("/messages") => serde_json::to_value(self.page(&query)).unwrap(),
            _ => self.session(),
        };
        Some(answer)
    }
}
