//! The hot paths of session-store and of machine-registry's heartbeat, compared with pgbench on the same server.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::fixture::Fixture;
use crate::load::{pgbench, wrk};
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

/// The tables of the baseline: the minimum that an append has to write.
const RIVAL_TABLES: &str = "CREATE TABLE session (id int PRIMARY KEY, seq bigint NOT NULL);
    CREATE TABLE message (session int NOT NULL, seq bigint NOT NULL, content text NOT NULL,
        created timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (session, seq));
    INSERT INTO session SELECT n, 0 FROM generate_series(1, 64) n;
    CREATE TABLE plain (id bigserial PRIMARY KEY, content text NOT NULL);
    CREATE TABLE machine (id int PRIMARY KEY, activity text, last_active timestamptz);
    INSERT INTO machine VALUES (1, '{}', now());";

fn content() -> String {
    "x".repeat(1024)
}

/// Sequence and message in one statement, on one contended row.
fn one_hot_session() -> String {
    format!(
        "WITH next AS (UPDATE session SET seq = seq + 1 WHERE id = 1 RETURNING seq) \
         INSERT INTO message (session, seq, content) SELECT 1, seq, '{}' FROM next;\n",
        content()
    )
}

fn plain_insert() -> String {
    format!("INSERT INTO plain (content) VALUES ('{}');\n", content())
}

/// What an append of one message does, with the same statements.
fn same_statements(session: &str) -> String {
    format!(
        "BEGIN;\n\
         SELECT last_seq + 1 AS seq, owner_id AS owner, now() AS at FROM sessions WHERE id = '{session}' FOR NO KEY UPDATE \\gset\n\
         INSERT INTO messages (session_id, seq, id, sender_id, local_id, content, created_at) \
         VALUES ('{session}', :seq, gen_random_uuid(), :owner, 'pgbench-' || :seq, '{}', :at);\n\
         UPDATE sessions SET last_seq = :seq, updated_at = :at, content_bytes = content_bytes + 1024 WHERE id = '{session}';\n\
         COMMIT;\n",
        content()
    )
}

pub(crate) fn append(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let baseline = machine.database("bench_rival")?;
    machine.sql(&baseline, RIVAL_TABLES)?;
    let many = fixture.sessions(64)?.join(",");
    let one = fixture.sessions(1)?.join(",");
    let cases = [
        (
            "append: 64 clients, one hot session",
            64,
            &one,
            one_hot_session(),
            "pgbench, one statement",
            Target::AtLeast(8.0),
        ),
        ("append: 64 clients, 64 sessions", 64, &many, plain_insert(), "pgbench, plain insert", Target::AtLeast(0.65)),
        ("append: one client", 1, &one, plain_insert(), "pgbench, plain insert", Target::None),
    ];
    for (case, (name, clients, sessions, script, rival, target)) in cases.into_iter().enumerate() {
        let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
        for round in 0..options.rounds {
            theirs.push(pgbench(&machine.pgbench, &baseline, clients, options.round, &script)?);
            let run = format!("{case}-{round}");
            let env = [("TOKEN", fixture.token.as_str()), ("SESSIONS", sessions.as_str()), ("RUN", run.as_str())];
            ours.push(wrk(&fixture.store.public, clients, options.round, "append.lua", &env)?.per_second);
        }
        report.versus(name, "msg/s", ours, (rival, theirs), target);
    }
    one_client(machine, options, report, &fixture)
}

/// What a person is: one client, next to one of pgbench that sends the same statements to a session of its own.
fn one_client(machine: &Machine, options: &Options, report: &mut Report, fixture: &Fixture<'_>) -> Result<()> {
    let (ours, theirs) = (fixture.sessions(1)?.concat(), fixture.sessions(1)?.concat());
    let script = same_statements(&theirs);
    let (mut rate, mut baseline) = (Rounds::default(), Rounds::default());
    let (mut half, mut their_mean) = (Rounds::default(), Rounds::default());
    for round in 0..options.rounds {
        let per_second = pgbench(&machine.pgbench, &fixture.store_database, 1, options.round, &script)?;
        baseline.push(per_second);
        their_mean.push(1e3 / per_second);
        let run = format!("one-{round}");
        let env = [("TOKEN", fixture.token.as_str()), ("SESSIONS", ours.as_str()), ("RUN", run.as_str())];
        let of_ours = wrk(&fixture.store.public, 1, options.round, "append.lua", &env)?;
        rate.push(of_ours.per_second);
        half.push(of_ours.p50_ms);
    }
    let name = "append: one client, against the same statements";
    report.versus(name, "msg/s", rate, ("pgbench, the same statements", baseline), Target::AtLeast(0.5));
    report.versus(&format!("{name}, p50"), "ms", half, ("pgbench, mean", their_mean), Target::AtMost(2.0));
    Ok(())
}

/// The selects of a page of 100 of the sessions of one of these owners.
fn same_selects(owners: &[String]) -> String {
    let (count, owners) = (owners.len(), owners.join(","));
    let entries = format!(
        "FROM sessions WHERE owner_id = ('{{{owners}}}'::uuid[])[:n] AND deleted_at IS NULL ORDER BY listed_at DESC, id DESC"
    );
    let size = "SELECT 512 + octet_length(metadata) + coalesce(octet_length(agent_state), 0) + octet_length(encryption_key) \
                FROM session_contents WHERE session_id = sessions.id";
    format!(
        "\\set n random(1, {count})\n\
         SELECT listed_at, id, ({size}) {entries} LIMIT 101;\n\
         SELECT s.*, c.*, now() FROM sessions s JOIN session_contents c ON c.session_id = s.id \
         LEFT JOIN shares h ON h.session_id = s.id AND h.user_id = s.owner_id \
         WHERE s.id = ANY (ARRAY(SELECT id {entries} LIMIT 100)) AND s.deleted_at IS NULL;\n"
    )
}

const PAGE: &str = "/v1/sessions?limit=100";

pub(crate) fn lists(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    const ACCOUNTS: usize = 16;
    let fixture = Fixture::start(machine)?;
    fixture.sessions(200)?;
    let mut tokens = fixture.token.clone();
    machine.sql(&fixture.store_database, "VACUUM ANALYZE")?;
    let env = [("TOKENS", tokens.as_str()), ("PATH_AND_QUERY", PAGE)];
    let mut half = Rounds::default();
    for _ in 0..options.rounds {
        half.push(wrk(&fixture.store.public, 1, options.round, "get.lua", &env)?.p50_ms);
    }
    report.alone("session list: page of 100 of 200, 1 client, p50", "ms", half, Target::AtMost(5.0));
    clients(machine, options, report, &fixture, (&tokens, "of one account"))?;
    for _ in 1..ACCOUNTS {
        let token = fixture.account()?;
        fixture.sessions_of(&token, 200)?;
        tokens = format!("{tokens},{token}");
    }
    machine.sql(&fixture.store_database, "VACUUM ANALYZE")?;
    clients(machine, options, report, &fixture, (&tokens, "of 16 accounts"))
}

/// 16 clients that read the first page of their lists.
fn clients(
    machine: &Machine,
    options: &Options,
    report: &mut Report,
    fixture: &Fixture<'_>,
    (tokens, of): (&str, &str),
) -> Result<()> {
    let owners = machine.rows(&fixture.store_database, "SELECT DISTINCT owner_id::text FROM sessions")?.concat();
    let script = same_selects(&owners);
    let env = [("TOKENS", tokens), ("PATH_AND_QUERY", PAGE)];
    let (mut ours, mut theirs, mut tail) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..options.rounds {
        theirs.push(pgbench(&machine.pgbench, &fixture.store_database, 16, options.round, &script)?);
        let round = wrk(&fixture.store.public, 16, options.round, "get.lua", &env)?;
        ours.push(round.per_second);
        tail.push(round.p99_ms);
    }
    let name = format!("session list: page of 100 of 200, 16 clients {of}");
    report.versus(&name, "pages/s", ours, ("pgbench, same selects", theirs), Target::AtLeast(0.25));
    report.alone(&format!("{name}, p99"), "ms", tail, Target::None);
    Ok(())
}

pub(crate) fn heartbeat(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let baseline = machine.database("bench_rival")?;
    machine.sql(&baseline, RIVAL_TABLES)?;
    let script = "UPDATE machine SET activity = '{\"load\":1}', last_active = now() WHERE id = 1;\n";
    let env = [
        ("TOKEN", fixture.token.as_str()),
        ("PATH_AND_QUERY", "/v1/machines/m"),
        ("BODY", r#"{"activity":{"load":1}}"#),
    ];
    let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
    for _ in 0..options.rounds {
        theirs.push(pgbench(&machine.pgbench, &baseline, 16, options.round, script)?);
        ours.push(wrk(&fixture.registry.public, 16, options.round, "patch.lua", &env)?.per_second);
    }
    report.versus("heartbeat: one machine, 16 clients", "beats/s", ours, ("pgbench, one update", theirs), Target::None);
    Ok(())
}

/// 100 readers of one session: the time from an append until the last of them has the message.
pub(crate) fn streams(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    const READERS: usize = 100;
    const MESSAGES: usize = 20;
    let fixture = Fixture::start(machine)?;
    let session = fixture.sessions(1)?.pop().context("no session")?;
    let url = format!("{}/v3/sessions/{session}/messages/stream?after=0", fixture.store.public);
    let (mut median, mut tail) = (Rounds::default(), Rounds::default());
    for round in 0..options.rounds {
        let expected = (round + 1) * MESSAGES;
        let (sender, mut arrived) = tokio::sync::mpsc::channel(READERS);
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let (url, token, sender) = (url.clone(), fixture.token.clone(), sender.clone());
            readers.push(machine.runtime.spawn(async move { read_stream(&url, &token, expected, &sender).await }));
        }
        let mut took = Vec::new();
        // Every reader first receives the existing messages; then each message is timed.
        for message in 0..=MESSAGES {
            if message > 0 {
                let started = Instant::now();
                let body = serde_json::json!({ "content": "x", "localId": format!("stream-{round}-{message}") });
                fixture.call(&fixture.store.public, "POST", &format!("/v3/sessions/{session}/messages"), body)?;
                machine.runtime.block_on(wait_for(&mut arrived, READERS))?;
                took.push(started.elapsed().as_secs_f64() * 1e3);
            } else {
                machine.runtime.block_on(wait_for(&mut arrived, READERS * (round * MESSAGES + 1)))?;
            }
        }
        took.sort_by(f64::total_cmp);
        median.push(*took.get(took.len() / 2).context("no times")?);
        tail.push(*took.last().context("no times")?);
        for reader in readers {
            machine.runtime.block_on(reader)??;
        }
    }
    report.alone("streams: append until the last of 100 readers has it, median", "ms", median, Target::None);
    report.alone("streams: the slowest of 20 such", "ms", tail, Target::None);
    Ok(())
}

async fn wait_for(arrived: &mut tokio::sync::mpsc::Receiver<()>, count: usize) -> Result<()> {
    for _ in 0..count {
        let next = tokio::time::timeout(std::time::Duration::from_secs(30), arrived.recv()).await;
        ensure!(next.context("a stream was silent for 30 s")?.is_some(), "a stream ended early");
    }
    Ok(())
}

/// Sends once when it is connected and once for each message, until it has seen `expected`.
async fn read_stream(url: &str, token: &str, expected: usize, sender: &tokio::sync::mpsc::Sender<()>) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut answer = http.get(url).bearer_auth(token).send().await?.error_for_status()?;
    let _ = sender.send(()).await;
    let (mut seen, mut rest) = (0, Vec::new());
    while seen < expected {
        let chunk = answer.chunk().await?.context("the stream ended")?;
        rest.extend_from_slice(&chunk);
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
            let frame: Vec<u8> = rest.drain(..end + 2).collect();
            if String::from_utf8_lossy(&frame).contains("event: message") {
                seen += 1;
                let _ = sender.send(()).await;
            }
        }
    }
    Ok(())
}
