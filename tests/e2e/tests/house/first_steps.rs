//! What a person does first, exactly as the README shows it.

use std::path::Path;
use std::process::Command;

use ensemble_e2e::House;
use ensemble_testkit::Backend;

async fn first_steps(backend: Backend) {
    let house = House::open(backend, &[]).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/first-steps.sh");
    let url = house.url().to_owned();
    let done = tokio::task::spawn_blocking(move || Command::new(script).arg(url).output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}\n{err}");
    let last = out.lines().last().unwrap();
    let page: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {out}\n{err}"));
    let contents: Vec<&str> =
        page["messages"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["<first ciphertext>", "<second ciphertext>"]);
    assert!(house.stack.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_steps_on_sqlite() {
    first_steps(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_steps_on_postgres() {
    first_steps(Backend::Postgres).await;
}
