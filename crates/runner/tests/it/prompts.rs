//! Prompts reach the model as they were written.

use ensemble_types::runs::Provider;

use crate::support::SOON;
use crate::support::clis::Bench;
use crate::support::orchestrator::completed;

/// 65,536 characters, most of them of four bytes: twice what fits into one argument of a program.
fn large() -> String {
    let filler: String = "😀é\"'`$(x)\\\n".chars().cycle().take(65_536 - 8).collect();
    format!("BEGIN {filler}.E")
}

async fn arrives_whole(provider: Provider, prompts: &[String]) {
    let bench = Bench::new(provider);
    for prompt in prompts {
        let finish = bench.server.finished(bench.server.enqueue(bench.task(prompt)), SOON).await;
        completed(&finish);
        let heard = bench.model.heard();
        let said = heard.iter().flat_map(|heard| &heard.said);
        let found = said.clone().any(|text| text.contains(prompt.trim()));
        let nearest = said.map(|text| text.chars().take(120).collect::<String>()).next_back();
        assert!(
            found,
            "{provider} did not pass on a prompt of {} characters; the last was {nearest:?}",
            prompt.chars().count()
        );
    }
}

fn prompts() -> Vec<String> {
    vec![
        "--help".to_owned(),
        "-p \"quoted\" 'and' `ticked` $HOME $(id)\nsecond line\r\n\ttab 😀 \u{10FFFF}".to_owned(),
        large(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude() {
    arrives_whole(Provider::Claude, &prompts()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex() {
    arrives_whole(Provider::Codex, &prompts()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini() {
    arrives_whole(Provider::Gemini, &prompts()).await;
}
