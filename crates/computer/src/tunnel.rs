//! `ensemble up --tunnel`: a program of the person's that leads others to this server by https. It runs below this one and ends with it.

mod kind;
mod notice;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_account::Account;
use ensemble_client::Client;
use ensemble_process::{Directory, Limits, Process, Settings, Start, default_guard};
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

pub use self::kind::Kind;
pub(crate) use self::kind::is_name;
pub use self::notice::Notice;
use crate::error::{Error, Result};
use crate::listener::is_own;
use crate::reach;
use crate::{Environment, program};

/// cloudflared has an address within this time.
const NAMED_WITHIN: Duration = Duration::from_secs(60);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// How much of what the program prints is kept, in lines and bytes of one.
const LINES: usize = 3;
const LONGEST_LINE: u64 = 400;
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
const BETWEEN_CHECKS: Duration = Duration::from_secs(2);
/// How long after its end a tunnel is started again, at first and at most.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);

/// A tunnel to a port of this computer.
pub struct Tunnel {
    kind: Kind,
    /// The server's address for others.
    address: String,
    port: u16,
    environment: Environment,
    running: Program,
}

/// The program below its guard.
struct Program {
    process: Process,
    /// The end of what it says, and those who read it.
    said: Said,
    readers: Vec<JoinHandle<()>>,
    has_ended: bool,
    metrics: u16,
}

type Said = Arc<Mutex<VecDeque<String>>>;

/// A tunnel that can be started.
pub struct Prepared {
    kind: Kind,
    program: PathBuf,
    /// Where it is known before.
    address: Option<String>,
    environment: Environment,
}

/// What the program around a tunnel does for it.
pub struct Around {
    /// A client of an address, whose calls are tried once.
    pub client: fn(String) -> Result<Client, ensemble_client::Error>,
    pub notices: fn(Notice),
}

impl Prepared {
    /// Refuses what cannot be, and what would change what is configured already.
    pub async fn new(kind: Kind, public_url: Option<&String>, environment: Environment) -> Result<Self> {
        let found = program(kind.name(), &environment);
        let program = found.map_err(|why| Error::sentence(format!("No tunnel: {why}.")))?;
        let address = kind.checked(&program, public_url, &environment).await?;
        Ok(Self { kind, program, address, environment })
    }

    /// Starts the tunnel to a port of this computer, and returns when its address is known.
    pub async fn start(self, port: u16) -> Result<Tunnel> {
        let Self { kind, program, address, environment } = self;
        let mut running = Program::start(&kind, &program, port, &environment).await?;
        let address = match address {
            Some(address) => address,
            None => tokio::select! {
                address = quick_tunnel(running.metrics) => address?,
                why = running.ended() => return Err(Error::sentence(format!("cloudflared has ended: {why}"))),
            },
        };
        Ok(Tunnel { kind, address, port, environment, running })
    }
}

impl Tunnel {
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Says who can reach the server, when that was seen, and starts the tunnel again when it ends.
    pub fn lead(mut self, me: Account, makes_accounts: bool, around: Around) -> Led {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            self.kind.warnings(makes_accounts).into_iter().for_each(around.notices);
            tokio::select! {
                () = self.leads(&me, &around) => {}
                _ = &mut stopped => {}
            }
            self.stop().await;
        });
        Led { task, stop }
    }

    async fn leads(&mut self, me: &Account, around: &Around) {
        let mut rest = REST;
        loop {
            let (address, begun) = (self.address.clone(), Instant::now());
            let was_reached = AtomicBool::new(false);
            let seen = async {
                was_reached.store(say_reached(me, &address, around).await, Ordering::Relaxed);
                // What was seen once stays so until the tunnel ends.
                std::future::pending().await
            };
            let why = tokio::select! {
                () = seen => String::new(),
                why = self.running.ended() => why,
            };
            (around.notices)(Notice::Ended { was_reached: was_reached.load(Ordering::Relaxed), why });
            if !self.kind.is_permanent() {
                return (around.notices)(Notice::NewAddress);
            }
            if begun.elapsed() > LONGEST_REST {
                rest = REST;
            }
            loop {
                (around.notices)(Notice::StartsAgain(rest));
                sleep(rest).await;
                rest = (rest * 2).min(LONGEST_REST);
                match self.again().await {
                    Ok(()) => break,
                    Err(error) => (around.notices)(Notice::NotStarted(error)),
                }
            }
        }
    }

    async fn again(&mut self) -> Result<()> {
        let program = program(self.kind.name(), &self.environment).map_err(Error::sentence)?;
        self.running = Program::start(&self.kind, &program, self.port, &self.environment).await?;
        Ok(())
    }

    async fn stop(&mut self) {
        if self.running.has_ended {
            return;
        }
        let process = &mut self.running.process;
        process.stop(GRACE).await;
        if timeout(GRACE * 2, process.ended()).await.is_err() {
            process.kill_guard();
        }
    }
}

/// A tunnel that is kept until it is ended.
pub struct Led {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Led {
    pub async fn end(self) {
        let _ended_already = self.stop.send(());
        let _panicked = self.task.await;
    }
}

/// Says that others reach the server, when it was seen from outside. A name that is new takes its time.
async fn say_reached(me: &Account, address: &str, around: &Around) -> bool {
    let until = Instant::now() + NAMED_WITHIN;
    let check = async || reach::check(me, (around.client)(address.to_owned())?).await;
    let why = loop {
        match check().await {
            Ok(_) => {
                (around.notices)(Notice::Reached(address.to_owned()));
                return true;
            }
            Err(why) if Instant::now() > until => break why,
            Err(_) => sleep(BETWEEN_CHECKS).await,
        }
    };
    (around.notices)(Notice::NotReached { address: address.to_owned(), why });
    false
}

impl Program {
    /// Starts the program below a guard, which ends it with this one. It gets only what it needs to find the person's configuration.
    async fn start(kind: &Kind, program: &Path, port: u16, environment: &Environment) -> Result<Self> {
        let metrics = free_port()?;
        let start = Start {
            program: program.to_owned(),
            args: kind.arguments(port, metrics),
            env: variables(environment),
            directory: Directory { root: PathBuf::from("/"), below: PathBuf::new() },
            prompt: String::new(),
            interactive: false,
            door: None,
        };
        let settings = Settings {
            guard: default_guard(),
            limits: Limits::default(),
            allow_new_privileges: false,
            term_grace: GRACE,
            leftover_grace: GRACE,
            temporary: None,
        };
        let started = Process::start(&settings, ensemble_types::ids::unique(), start).await;
        let failed = |error| Error::sentence(format!("{}: {error}.", program.display()));
        let (process, stdout, stderr) = started.map_err(failed)?;
        let said = Said::default();
        let readers =
            vec![tokio::spawn(keep_last(stdout, said.clone())), tokio::spawn(keep_last(stderr, said.clone()))];
        Ok(Self { process, said, readers, has_ended: false, metrics })
    }

    /// Waits until it has ended. Why, in its own words.
    async fn ended(&mut self) -> String {
        let ended = self.process.ended().await;
        self.has_ended = true;
        // Its last words may still be in the pipes.
        let _or_late = timeout(LAST_WORDS_WITHIN, join_all(self.readers.drain(..))).await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        match ended {
            Ok(exit) if said.is_empty() => format!("it says nothing ({exit:?})"),
            Ok(_) => said.join(" "),
            Err(why) => why,
        }
    }
}

/// Keeps the last lines that a program prints.
async fn keep_last(from: impl AsyncRead + Unpin, said: Said) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    // A program whose pipe is closed ends when it prints, so nothing stops this but its end.
    while (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_back(String::from_utf8_lossy(&line).trim().to_owned());
        line.clear();
        if said.len() > LINES {
            said.pop_front();
        }
    }
}

/// The variables of the tunnel's program.
pub(crate) fn variables(environment: &Environment) -> Environment {
    let mut variables = environment.clone();
    variables.retain(|name, _| ["HOME", "USER", "LOGNAME", "PATH", "SSH_AUTH_SOCK"].contains(&name.as_str()));
    variables
}

/// The address of a quick tunnel, as cloudflared says at its metrics port.
async fn quick_tunnel(metrics: u16) -> Result<String> {
    #[derive(Deserialize)]
    struct Named {
        hostname: String,
    }
    let until = Instant::now() + NAMED_WITHIN;
    while Instant::now() < until {
        let answer = timeout(ANSWERS_WITHIN, asked(metrics)).await;
        let named = answer.ok().and_then(std::result::Result::ok);
        if let Some(Named { hostname }) = named.and_then(|body| serde_json::from_str(&body).ok())
            && is_name(&hostname)
        {
            return Ok(format!("https://{hostname}"));
        }
        sleep(BETWEEN_LOOKS).await;
    }
    Err(Error::sentence(format!("cloudflared had no address within {} s.", NAMED_WITHIN.as_secs())))
}

async fn asked(metrics: u16) -> std::io::Result<String> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, metrics));
    if !is_own(at) {
        // Another user's program could name an address of its own.
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(b"GET /quicktunnel HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(65_536).read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
