//! Lists of large accounts: a page walks an index, however many sessions there are, and reads only those that stand on it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use diesel::prelude::*;
use diesel::sql_types::Text;
use ensemble_testkit::{Api, Backend, on_both_databases, sql, statement_texts};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};
use tokio_postgres::{Client as Postgres, NoTls, SimpleQueryMessage};

use crate::fixture::{Client, Fixture};

const PAGE: u64 = 100;
const FEW: u64 = 100;
const MANY: u64 = 10_000;
/// In PostgreSQL's terms.
const SOME_TIME_AGO: &str = "now() - interval '5 minutes'";

/// Which list, by its address, and the parameters of its statement between those for the owner and for the limit.
struct List {
    path: &'static str,
    by_machine: bool,
    parameters: Vec<String>,
}

fn lists(machine: &str, listed: &Value) -> Vec<List> {
    let after = || vec![SOME_TIME_AGO.to_owned(), format!("'{}'", listed["sessions"][0]["id"].as_str().unwrap())];
    let list = |path, by_machine, parameters| List { path, by_machine, parameters };
    vec![
        list("/v1/sessions?", false, vec![]),
        list("/v1/sessions?cursor=next&", false, after()),
        list("/v1/sessions?changedSince=2020-01-01T00:00:00Z&", false, vec![SOME_TIME_AGO.to_owned(); 2]),
        list("/v1/sessions?attention=any&", false, vec![]),
        list("/v2/sessions/active?", false, vec![]),
        list("/v1/sessions?", true, vec![format!("'{machine}'")]),
    ]
}

/// Gives the account sessions that its machine hosts, six of each minute. One of a hundred is active and wants something.
async fn fill(fixture: &Fixture, on: Backend, owner: &Client, count: u64) {
    let (id, machine) = (literal(on, owner.id), &owner.machine);
    // Each account has another count, so that no two have the same refs.
    let refs = count;
    let (numbers, new_id, reference, now, second) = match on {
        Backend::Postgres => {
            let numbers = format!("generate_series(1, {count}) AS numbers (n)");
            (numbers, "gen_random_uuid()", format!("lpad(to_hex({refs} + n), 8, '0')"), "now()", "interval '1 second'")
        }
        Backend::Sqlite => {
            let all = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <";
            let numbers = format!("({all} {count}) SELECT n FROM numbers)");
            let now = "(unixepoch() * 1000000)";
            (numbers, "randomblob(16)", format!("printf('%08x', {refs} + n)"), now, "1000000")
        }
    };
    fixture
        .execute(&format!(
            "INSERT INTO sessions (id, ref, owner_id, machine_id, hosted, metadata_version, agent_state_version, ended_at, archived, \
             thinking, last_seq, key_epoch, rekey_needed, revision, created_at, updated_at, attention_kind) \
             SELECT {new_id}, {reference}, {id}, '{machine}', true, 1, 0, CASE WHEN n % 100 > 0 THEN {now} END, false, false, 0, 1, \
             false, 0, {now}, {now} - n * 10 * {second}, CASE WHEN n % 100 = 0 THEN 2 ELSE 0 END FROM {numbers}; \
             INSERT INTO session_contents (session_id, metadata, encryption_key) \
             SELECT id, 'sealed metadata', 'sealed key' FROM sessions WHERE owner_id = {id}; ANALYZE"
        ))
        .await;
}

fn literal(on: Backend, id: UserId) -> String {
    match on {
        Backend::Postgres => format!("'{id}'"),
        Backend::Sqlite => format!("x'{}'", id.uuid().simple()),
    }
}

/// The two statements of a page, and the page.
async fn statements_of(fixture: &Fixture, api: &Api, path: &str) -> (Vec<String>, Value) {
    let mut page = Value::Null;
    let texts = statement_texts(&fixture.database.url, async {
        page = api.get(path).await.expect(200);
    });
    // Those of timers are left out.
    let about = |text: &String| text.contains("listed_at") || text.contains("LEFT OUTER JOIN");
    (texts.await.into_iter().filter(about).collect(), page)
}

on_both_databases! {
    async fn a_page_reads_what_stands_on_it(on: Backend) {
        let fixture = Fixture::start(on).await;
        for count in [MANY, FEW] {
            let owner = fixture.client();
            fill(&fixture, on, &owner, count).await;
            let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
            let first = owner.api.get("/v1/sessions?limit=50").await.expect(200);
            for list in lists(owner.machine.as_str(), &first) {
                let path = format!("{}limit={PAGE}", list.path.replace("next", first["nextCursor"].as_str().unwrap()));
                let api = if list.by_machine { &machine } else { &owner.api };
                let (texts, page) = statements_of(&fixture, api, &path).await;
                let [entries, whole] = texts.as_slice() else { panic!("{path} of {count} took {texts:#?}") };
                match on {
                    Backend::Postgres => {
                        let limit = (PAGE + 1).to_string();
                        let of = format!("'{}'", owner.id);
                        let parameters = [vec![of.clone()], list.parameters, vec![limit]].concat();
                        let database = connect(&fixture).await;
                        let plan = plan(&database, entries, &parameters).await;
                        assert!(!plan.to_string().contains("Sort"), "{path} of {count}: {plan:#}");
                        let ids: Vec<&str> =
                            page["sessions"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap()).collect();
                        let whole = self::plan(&database, whole, &[of, format!("'{{{}}}'", ids.join(","))]).await;
                        let rows = rows_read(&plan) + rows_read(&whole);
                        assert!(rows > 0 && rows <= 2 * PAGE + 1, "{path} of {count} reads {rows}: {plan:#}");
                    }
                    Backend::Sqlite => {
                        let plan = sqlite_plan(&fixture, entries);
                        assert!(plan.contains("SEARCH sessions USING INDEX") && !plan.contains("SCAN"), "{path}: {plan}");
                        assert!(!plan.contains("TEMP B-TREE"), "{path}: {plan}");
                    }
                }
            }
        }
    }

    async fn sessions_of_one_minute_are_in_the_order_of_their_ids(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let mut made = Vec::new();
        for _ in 0..5 {
            made.push(owner.session().await);
        }
        // All of one minute, and the oldest one changed last.
        let (minute, second) = match on {
            Backend::Postgres => ("timestamptz '2026-03-26 00:00:00+00'", "interval '1 second'"),
            Backend::Sqlite => ("1774483200000000", "1000000"),
        };
        for (place, id) in made.iter().enumerate() {
            let id = literal(on, id.parse().unwrap());
            fixture.execute(&format!("UPDATE sessions SET updated_at = {minute} + {} * {second} WHERE id = {id}", 9 - place)).await;
        }
        made.reverse();
        assert_eq!(walk(&owner.api, "").await, made);
        // A minute later, it is the first one.
        let oldest = literal(on, made[4].parse().unwrap());
        fixture.execute(&format!("UPDATE sessions SET updated_at = {minute} + 60 * {second} WHERE id = {oldest}")).await;
        made.rotate_right(1);
        assert_eq!(walk(&owner.api, "").await, made);
        for (since, found) in [
            ("2026-03-26T00:00:00Z", 5),
            ("2026-03-26T00:00:06.000Z", 4),
            ("2026-03-26T00:00:06.001Z", 3),
            ("2026-03-26T01:00:08%2B01:00", 2),
            ("2026-03-26T00:01:00Z", 1),
            ("2026-03-26T00:01:00.001Z", 0),
        ] {
            let changed = walk(&owner.api, &format!("&changedSince={since}")).await;
            let mut wanted: Vec<String> = made[..1].to_vec();
            // Among the others the one with the smaller id changed later.
            wanted.extend(made[1..].iter().rev().take(found.max(1) - 1).rev().cloned());
            wanted.truncate(found);
            assert_eq!(changed, wanted, "since {since}");
        }
        for bad in ["yesterday", "2026-03-26", "1774483200"] {
            assert_eq!(owner.api.get(&format!("/v1/sessions?changedSince={bad}")).await.bad_fields().len(), 1, "{bad}");
        }
    }

    async fn a_share_is_a_change_for_its_user(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let session = owner.session().await;
        let old = if on == Backend::Postgres { "now() - interval '1 day'" } else { "1774483200000000" };
        fixture.execute(&format!("UPDATE sessions SET updated_at = {old}")).await;
        let since = owner.api.get(&format!("/v1/sessions/{session}")).await.expect(200)["updatedAt"].clone();
        let since: Timestamp = since.as_str().unwrap().parse().unwrap();
        let since = format!("&changedSince={}", since.plus(Duration::from_secs(60)));
        let guest = fixture.guest(&owner, &session, "view").await;
        assert_eq!(walk(&guest.api, &format!("&include=shared{since}")).await, [session]);
        assert!(walk(&owner.api, &since).await.is_empty());
    }

    async fn a_cursor_of_another_order_or_filter_is_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        for _ in 0..3 {
            owner.session().await;
        }
        // As the release before made them, whose lists were in the order of `updated_at`.
        let last = owner.session().await;
        let old = URL_SAFE_NO_PAD.encode(format!("sessions {}\n{}", owner.id, json!([1_774_483_200_000_000_i64, last])));
        owner.api.get(&format!("/v1/sessions?cursor={old}")).await.problem(400, "INVALID_CURSOR");
        let since = "/v1/sessions?limit=1&changedSince=2026-03-26T00:00:00Z";
        let cursor = owner.api.get(since).await.expect(200)["nextCursor"].as_str().unwrap().to_owned();
        owner.api.get(&format!("{since}&cursor={cursor}")).await.expect(200);
        for other in ["/v1/sessions?limit=1", "/v1/sessions?limit=1&changedSince=2026-03-26T00:00:01Z"] {
            owner.api.get(&format!("{other}&cursor={cursor}")).await.problem(400, "INVALID_CURSOR");
        }
    }
}

/// The ids of a whole list, by pages of two.
async fn walk(api: &Api, filter: &str) -> Vec<String> {
    let (mut walked, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/v1/sessions?limit=2{filter}{cursor}")).await.expect(200);
        walked.extend(page["sessions"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return walked,
        }
    }
}

async fn connect(fixture: &Fixture) -> Postgres {
    let (client, connection) = tokio_postgres::connect(&fixture.database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Runs a statement with these parameters, and gives the plan with the numbers of its rows.
async fn plan(database: &Postgres, text: &str, parameters: &[String]) -> Value {
    database.batch_execute(&format!("PREPARE page AS {text}")).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE page({})", parameters.join(", "));
    let answer = database.simple_query(&explain).await.unwrap();
    database.batch_execute("DEALLOCATE page").await.unwrap();
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    serde_json::from_str::<Value>(row.unwrap()).unwrap()[0]["Plan"].clone()
}

/// How many rows of sessions a plan has read, those that a filter removed included.
fn rows_read(plan: &Value) -> u64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or(0.0) as u64;
    let rows = number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let own = if plan["Relation Name"] == "sessions" { rows * number("Actual Loops") } else { 0 };
    own + plan["Plans"].as_array().into_iter().flatten().map(rows_read).sum::<u64>()
}

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

/// The steps of a statement.
fn sqlite_plan(fixture: &Fixture, text: &str) -> String {
    let file = fixture.database.url.strip_prefix("sqlite:").unwrap();
    let steps: Vec<Step> =
        diesel::sql_query(format!("EXPLAIN QUERY PLAN {text}")).load(&mut sql::sqlite(file)).unwrap();
    steps.into_iter().map(|step| step.detail + "\n").collect()
}
