//! Which providers this machine offers: those whose program is there and can work.

mod offer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ensemble_host::search_path;
use ensemble_host::sign_in::{self, SignIn, State, Version};
use ensemble_types::runs::Provider;
use tokio::sync::{Notify, watch};

use crate::config::Config;

pub use offer::{NotOffered, Offer};

/// How long the answer of a program is used at most. A person who signs in does not wait for this: a program without a sign-in
/// is asked again when its files have changed, and before this with growing pauses.
const ANSWER_LASTS: Duration = Duration::from_secs(600);
/// The pause before a program without a sign-in is asked for the first time again.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The agents in addition to the three that are offered. A request for work may name 16.
const MOST_OTHERS: usize = 12;

/// The providers of this machine. A provider that is not offered comes with the reason.
pub async fn offers(config: &Config) -> Vec<Offer> {
    Asked::default().offers(config).await
}

/// Keeps the list of offers up to date: programs are installed and removed, and people sign in and out.
pub(crate) async fn keep(config: Arc<Config>, offered: watch::Sender<Vec<Offer>>, signed_out: Arc<Notify>) {
    let mut known = Asked::default();
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
            // An agent said that it is not signed in, so earlier answers do not count.
            () = signed_out.notified() => known = Asked::default(),
        }
    }
}

/// What the programs have answered.
#[derive(Default)]
struct Asked(Vec<Answer>);

#[derive(Clone)]
struct Answer {
    provider: Provider,
    program: PathBuf,
    modified: Option<SystemTime>,
    /// When the program's sign-in was changed, as its files say it.
    sign_in_changed: Option<SystemTime>,
    asked_at: Instant,
    lasts: Duration,
    state: State,
}

impl Asked {
    async fn offers(&mut self, config: &Config) -> Vec<Offer> {
        let all = futures_util::future::join_all(Provider::ALL.map(|provider| self.offer(config, provider))).await;
        self.0 = all.iter().filter_map(|(_, answer)| answer.clone()).collect();
        all.into_iter().map(|(offer, _)| offer).chain(others(config)).collect()
    }

    async fn offer(&self, config: &Config, provider: Provider) -> (Offer, Option<Answer>) {
        let without = |why: NotOffered| (Offer { provider, program: Err(why), version: None, signed_in: None }, None);
        let programs = config.programs();
        let Some(wanted) = programs.providers.get(&provider).filter(|wanted| wanted.enabled) else {
            return without(NotOffered::unavailable("it is switched off in the runner's configuration"));
        };
        let program = match ensemble_process::find(&wanted.program, search_path(&config.environment), None) {
            Ok(program) => program,
            Err(reason) => {
                let install = install(provider).map(|how| format!(" Install it: {how}")).unwrap_or_default();
                return without(NotOffered::unavailable(format!("{reason}.{install}")));
            }
        };
        let environment = config.program_env(wanted);
        let modified = modified(&program);
        let sign_in_changed = sign_in::changed_at(provider, &environment);
        let known = self
            .0
            .iter()
            .find(|answer| answer.provider == provider && answer.program == program && answer.modified == modified);
        let answer = match known.filter(|answer| answer.still_holds(sign_in_changed)) {
            Some(answer) => answer.clone(),
            None => {
                let version = known.and_then(|answer| answer.state.version.known());
                let state = sign_in::ask(provider, &program, &environment, &wanted.args, version).await;
                let lasts = match (&state, known) {
                    (state, _) if state.is_good() => ANSWER_LASTS,
                    (_, Some(known)) if !known.state.is_good() => next_pause(known.lasts),
                    _ => FIRST_PAUSE,
                };
                // Looked at again: a program that is asked may write to its files.
                let sign_in_changed = sign_in::changed_at(provider, &environment);
                let program = program.clone();
                Answer { provider, program, modified, sign_in_changed, asked_at: Instant::now(), lasts, state }
            }
        };
        let State { version, sign_in } = answer.state.clone();
        let (program, signed_in) = match (&version, sign_in) {
            (Version::NotStartable(why), _) => {
                (Err(NotOffered::unavailable(format!("{} cannot be started: {why}", program.display()))), None)
            }
            (_, SignIn::Yes) => (Ok(program), Some(true)),
            (_, SignIn::Unknown) => (Ok(program), None),
            (_, SignIn::No(advice)) => (Err(NotOffered::not_signed_in(advice)), Some(false)),
        };
        (Offer { provider, program, version: version.known(), signed_in }, Some(answer))
    }
}

/// The agents in addition to the three. They are not asked anything: each has another way to say something about itself.
fn others(config: &Config) -> Vec<Offer> {
    let programs = config.programs();
    let configured = programs.agents.keys().map(String::as_str);
    let usual = ["opencode"].into_iter().filter(|name| !programs.agents.contains_key(*name));
    let offer = |name: &str| {
        let provider = name.parse().ok()?;
        let found = config
            .agent(name)
            .and_then(|(known, _)| ensemble_process::find(&known.program, search_path(&config.environment), None))
            .map_err(NotOffered::unavailable);
        // What no person has configured is no news when it is not there.
        let is_wanted = found.is_ok() || programs.agents.contains_key(name);
        is_wanted.then_some(Offer { provider, program: found, version: None, signed_in: None })
    };
    usual.chain(configured).filter_map(offer).take(MOST_OTHERS).collect()
}

impl Answer {
    /// Whether the answer can be used without another question.
    fn still_holds(&self, sign_in_changed: Option<SystemTime>) -> bool {
        self.asked_at.elapsed() < self.lasts && (self.state.is_good() || self.sign_in_changed == sign_in_changed)
    }
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(ANSWER_LASTS)
}

fn modified(program: &Path) -> Option<SystemTime> {
    std::fs::metadata(program).and_then(|found| found.modified()).ok()
}

fn log(found: &[Offer], before: &[Offer]) {
    for offer in found.iter().filter(|offer| !before.contains(offer)) {
        let version = offer.version.as_deref().unwrap_or("unknown");
        match &offer.program {
            Ok(path) => {
                tracing::info!(provider = %offer.provider, version, program = %path.display(), "Offering a provider")
            }
            Err(NotOffered { reason, .. }) => {
                tracing::info!(provider = %offer.provider, reason, "This machine does not offer the agent")
            }
        }
    }
}

/// The command that installs a provider's program, from the pages of its maker.
pub fn install(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::Claude => Some("npm install -g @anthropic-ai/claude-code"),
        Provider::Codex => Some("npm install -g @openai/codex"),
        Provider::Gemini => Some("npm install -g @google/gemini-cli"),
        Provider::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use ensemble_client::Credential;
    use ensemble_types::ids::MachineId;

    use super::*;
    use crate::config::{AgentConfig, ProviderConfig};

    #[tokio::test]
    async fn a_signed_out_program_is_asked_again_when_its_files_change() {
        let home = tempfile::tempdir().unwrap();
        let (program, asked) = (home.path().join("agent"), home.path().join("asked"));
        let text = "#!/bin/sh\n[ \"$1\" = auth ] && { echo sign-in >> asked; echo '{\"loggedIn\":false}'; exit 1; }\n\
                    echo version >> asked; echo 1.2.3\n";
        std::fs::write(&program, text.replace("asked", asked.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        let environment = BTreeMap::from([("HOME".to_owned(), home.path().display().to_string())]);
        let (machine, credential) = (MachineId::generate(), Credential::Bearer("t".into()));
        let mut config = Config::new("http://s", machine, credential, home.path(), environment);
        for (provider, entry) in &mut config.providers {
            entry.enabled = *provider == Provider::Claude;
        }
        config.providers.insert(Provider::Claude, ProviderConfig { program, ..ProviderConfig::of(Provider::Claude) });
        let mut known = Asked::default();
        let look = async |known: &mut Asked| {
            let offers = known.offers(&config).await;
            let claude = offers.into_iter().find(|offer| offer.provider == Provider::Claude).unwrap();
            assert_eq!((claude.version.as_deref(), claude.signed_in), (Some("1.2.3"), Some(false)));
            let mut questions: Vec<String> =
                std::fs::read_to_string(&asked).unwrap().lines().map(str::to_owned).collect();
            questions.sort();
            questions
        };
        for _ in 0..5 {
            assert_eq!(look(&mut known).await, ["sign-in", "version"]);
        }
        std::fs::write(home.path().join(".claude.json"), "{}").unwrap();
        for _ in 0..5 {
            assert_eq!(look(&mut known).await, ["sign-in", "sign-in", "version"]);
        }
    }

    #[test]
    fn the_demo_is_an_agent_of_sessions_and_offered_to_no_task() {
        let (machine, credential) = (MachineId::generate(), Credential::Bearer("t".into()));
        let mut config = Config::new("http://s", machine, credential, "/s", BTreeMap::new());
        assert!(others(&config).iter().all(|offer| offer.provider.as_str() != Provider::DEMO));
        config.agents.insert(Provider::DEMO.to_owned(), AgentConfig::of(vec!["/bin/sh".to_owned()]));
        let named = others(&config).into_iter().find(|offer| offer.provider.as_str() == Provider::DEMO).unwrap();
        assert!(named.program.unwrap_err().reason.contains("another name"));
        let settings = Arc::new(config).settings();
        let script = settings.agent(Provider::DEMO).unwrap();
        assert_eq!(script.args, ["runner", "demo"], "not the one of the configuration");
    }

    #[test]
    fn the_pauses_between_questions_grow_to_ten_minutes() {
        let mut pause = FIRST_PAUSE;
        let pauses: Vec<u64> = std::iter::repeat_with(|| {
            let now = pause.as_secs();
            pause = next_pause(pause);
            now
        })
        .take(6)
        .collect();
        assert_eq!(pauses, [60, 120, 240, 480, 600, 600]);
    }
}
