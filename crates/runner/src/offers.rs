//! Which providers this machine offers: those whose program is there and can work.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ensemble_types::runs::Provider;
use tokio::sync::{Notify, watch};

use crate::config::Config;
use crate::provider::{self, NotOffered, Offer, SignIn, State};

/// How long the answer of a program is used. Somebody who signs in does not wait for this: a program without a sign-in is
/// asked whenever programs are looked for.
const ANSWER_LASTS: Duration = Duration::from_secs(600);

/// The providers of this machine. A provider that is not offered comes with the reason.
pub async fn offers(config: &Config) -> Vec<Offer> {
    Known::default().offers(config).await
}

/// Keeps the list of offers up to date: programs are installed and removed, and people sign in and out.
pub(crate) async fn keep(config: Arc<Config>, offered: watch::Sender<Vec<Offer>>, signed_out: Arc<Notify>) {
    let mut known = Known::default();
    loop {
        let found = known.offers(&config).await;
        log(&found, &offered.borrow());
        offered.send_if_modified(|before| {
            let changed = *before != found;
            *before = found;
            changed
        });
        tokio::select! {
            () = tokio::time::sleep(config.timing.look_for_programs.max(Duration::from_millis(10))) => {}
            // An agent said that nobody is signed in, so earlier answers do not count.
            () = signed_out.notified() => known = Known::default(),
        }
    }
}

/// What the programs have answered.
#[derive(Default)]
struct Known(Vec<Answer>);

struct Answer {
    provider: Provider,
    program: PathBuf,
    modified: Option<SystemTime>,
    asked_at: Instant,
    state: State,
}

impl Known {
    async fn offers(&mut self, config: &Config) -> Vec<Offer> {
        let all = futures_util::future::join_all(Provider::ALL.map(|provider| self.offer(config, provider))).await;
        self.0 = all.iter().filter_map(|(_, answer)| answer.as_ref().map(Answer::copy)).collect();
        all.into_iter().map(|(offer, _)| offer).collect()
    }

    async fn offer(&self, config: &Config, provider: Provider) -> (Offer, Option<Answer>) {
        let without = |why: NotOffered| (Offer { provider, program: Err(why), version: None, signed_in: None }, None);
        let Some(wanted) = config.providers.get(&provider).filter(|wanted| wanted.enabled) else {
            return without(NotOffered::unavailable("it is switched off in the runner's configuration"));
        };
        let program = match provider::find(&wanted.program, config.search_path()) {
            Ok(program) => program,
            Err(reason) => return without(NotOffered::unavailable(format!("{reason}. {}", install(provider)))),
        };
        let modified = modified(&program);
        let answer = match self.answer(provider, &program, modified) {
            Some(answer) => answer.copy(),
            None => {
                let state = provider::ask(provider, &program, &config.program_env(wanted), &wanted.args).await;
                Answer { provider, program: program.clone(), modified, asked_at: Instant::now(), state }
            }
        };
        let State { version, sign_in } = answer.state.clone();
        let (program, signed_in) = match sign_in {
            SignIn::Yes => (Ok(program), Some(true)),
            SignIn::Unknown => (Ok(program), None),
            SignIn::No(advice) => (Err(NotOffered::not_signed_in(advice)), Some(false)),
        };
        (Offer { provider, program, version, signed_in }, Some(answer))
    }

    /// What a program has answered, if that can still be so.
    fn answer(&self, provider: Provider, program: &Path, modified: Option<SystemTime>) -> Option<&Answer> {
        self.0.iter().find(|answer| {
            answer.provider == provider
                && answer.program == program
                && answer.modified == modified
                && answer.asked_at.elapsed() < ANSWER_LASTS
                && !matches!(answer.state.sign_in, SignIn::No(_))
        })
    }
}

impl Answer {
    fn copy(&self) -> Self {
        let Self { provider, modified, asked_at, .. } = *self;
        Self { provider, program: self.program.clone(), modified, asked_at, state: self.state.clone() }
    }
}

fn modified(program: &Path) -> Option<SystemTime> {
    std::fs::metadata(program).and_then(|found| found.modified()).ok()
}

/// How to install a program, from the pages of its maker.
fn install(provider: Provider) -> &'static str {
    match provider {
        Provider::Claude => "Install it: npm install -g @anthropic-ai/claude-code",
        Provider::Codex => "Install it: npm install -g @openai/codex",
        Provider::Gemini => "Install it: npm install -g @google/gemini-cli",
    }
}

fn log(found: &[Offer], before: &[Offer]) {
    for offer in found.iter().filter(|offer| !before.contains(offer)) {
        let version = offer.version.as_deref().unwrap_or("unknown");
        match &offer.program {
            Ok(path) => {
                tracing::info!(provider = %offer.provider, version, program = %path.display(), "Offering a provider")
            }
            Err(NotOffered { reason, .. }) => {
                tracing::info!(provider = %offer.provider, reason, "Not offering a provider")
            }
        }
    }
}
