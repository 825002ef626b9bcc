//! Prompts reach the model unchanged.

use ensemble_types::runs::Provider;

use crate::support::SOON;
use crate::support::clis::Fixture;
use crate::support::orchestrator::completed;

/// 65,536 characters, most of them of four bytes: twice the limit of a program argument.
fn large() -> String {
    let filler: String = "😀é\"'`$(x)\\\n".chars().cycle().take(65_536 - 8).collect();
    format!("BEGIN {filler}.E")
}

async fn arrives_complete(provider: Provider, prompts: &[String]) {
    let fixture = Fixture::new(provider);
    for prompt in prompts {
        let finish = fixture.server.finished(fixture.server.enqueue(fixture.task(prompt)), SOON).await;
        completed(&finish);
        let recorded = fixture.model.requests();
        let said = recorded.iter().flat_map(|recorded| &recorded.user_messages);
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
    arrives_complete(Provider::Claude, &prompts()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex() {
    arrives_complete(Provider::Codex, &prompts()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini() {
    arrives_complete(Provider::Gemini, &prompts()).await;
}
