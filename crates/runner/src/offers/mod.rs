//! Which providers this machine offers: those whose program is there and can work.

mod offer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ensemble_agent::{Kind, known};
use ensemble_host::search_path;
use ensemble_host::sign_in::{self, SignIn, State, Version};
use ensemble_types::runs::Provider;
use futures_util::{StreamExt, stream};
use tokio::sync::{Notify, watch};

use crate::config::Config;

pub use offer::{NotOffered, Offer};

/// How long the answer of a program is used at most. A person who signs in does not wait for this: a program without a sign-in
/// is asked again when its files have changed, and before this with growing pauses.
const ANSWER_LASTS: Duration = Duration::from_secs(600);
/// The pause before a program without a sign-in is asked for the first time again.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The agents in addition to the three that are offered. A request for work may name 16.
const MOST_OTHERS: usize = 13;
/// Programs that are asked at once. Some take seconds of a processor for an answer.
const AT_ONCE: usize = 2;

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
        let wanted = Provider::ALL.into_iter().chain(others(config));
        let all: Vec<_> =
            stream::iter(wanted.map(|provider| self.offer(config, provider))).buffered(AT_ONCE).collect().await;
        self.0 = all.iter().filter_map(|(_, answer)| answer.clone()).collect();
        all.into_iter().map(|(offer, _)| offer).collect()
    }

    async fn offer(&self, config: &Config, provider: Provider) -> (Offer, Option<Answer>) {
        let without = |why: String| {
            let program = Err(NotOffered::unavailable(why));
            (Offer { provider, program, version: None, signed_in: None }, None)
        };
        let found = config
            .agent(provider.as_str())
            .and_then(|(agent, settings)| Ok((settings, agent.find(&config.environment, None)?)));
        let (settings, program) = match found {
            Ok(found) => found,
            Err(why) => return without(why),
        };
        // Another command may not know the question.
        let is_known = known::named(provider.as_str()).is_some_and(|known| program.ends_with(known.program));
        if matches!(provider, Provider::Other(_)) && !is_known {
            return (Offer { provider, program: Ok(program), version: None, signed_in: None }, None);
        }
        let environment = config.program_env(&settings);
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
                let state = sign_in::ask(provider, &program, &environment, &settings.args, version).await;
                let lasts = match (&state, known) {
                    // Only its version was asked for, and its file has another one when it changes.
                    (state, _) if state.is_good() && matches!(provider, Provider::Other(_)) => Duration::MAX,
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
        let (path, unavailable) = (program.display(), |why: String| Err(NotOffered::unavailable(why)));
        let (program, signed_in) = match (&version, sign_in) {
            (Version::NotStartable(why), _) => (unavailable(format!("{path} cannot be started: {why}")), None),
            (Version::OfAnother(line), _) => {
                (unavailable(format!("{path} is another program with this name: its --version says {line:?}")), None)
            }
            (_, SignIn::Yes) => (Ok(program), Some(true)),
            (_, SignIn::Unknown) => (Ok(program), None),
            (_, SignIn::No(advice)) => (Err(NotOffered::not_signed_in(advice)), Some(false)),
        };
        (Offer { provider, program, version: version.known(), signed_in }, Some(answer))
    }
}

/// The agents in addition to the three: what the configuration has, and opencode where it is there. Of the others it is not known which
/// permission their tasks can have, so a person names them.
fn others(config: &Config) -> Vec<Provider> {
    let programs = config.programs();
    let agents = &programs.agents;
    let is_there = |known: &&known::Agent| {
        known.starts.is_some_and(|(kind, _)| kind != Kind::Acp)
            && !agents.contains_key(known.name)
            && ensemble_process::find(known.program.as_ref(), search_path(&config.environment), None).is_ok()
    };
    let there = known::ALL.iter().filter(is_there).map(|known| known.name);
    let names = agents.keys().map(String::as_str).chain(there);
    let providers = names.filter_map(|name| name.parse().ok());
    providers.filter(|provider| matches!(provider, Provider::Other(_))).take(MOST_OTHERS).collect()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use ensemble_agent::Kind;
    use ensemble_client::Credential;
    use ensemble_types::ids::MachineId;

    use super::*;
    use crate::config::{AgentConfig, ProviderConfig};

    fn config_with(environment: BTreeMap<String, String>) -> Config {
        Config::new("http://s", MachineId::generate(), Credential::Bearer("t".into()), "/s", environment)
    }

    #[tokio::test]
    async fn a_signed_out_program_is_asked_again_when_its_files_change() {
        let home = tempfile::tempdir().unwrap();
        let (program, asked) = (home.path().join("agent"), home.path().join("asked"));
        let text = "#!/bin/sh\n[ \"$1\" = auth ] && { echo sign-in >> asked; echo '{\"loggedIn\":false}'; exit 1; }\n\
                    echo version >> asked; echo 1.2.3\n";
        std::fs::write(&program, text.replace("asked", asked.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        let environment = BTreeMap::from([("HOME".to_owned(), home.path().display().to_string())]);
        let mut config = config_with(environment);
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

    #[tokio::test]
    async fn the_demo_is_an_agent_of_sessions_and_offered_to_no_task() {
        let mut config = config_with(BTreeMap::new());
        assert!(others(&config).iter().all(|provider| provider.as_str() != Provider::DEMO));
        config.agents.insert(Provider::DEMO.to_owned(), AgentConfig::of(vec!["/bin/sh".to_owned()]));
        let offered = Asked::default().offers(&config).await;
        let named = offered.into_iter().find(|offer| offer.provider.as_str() == Provider::DEMO).unwrap();
        assert!(named.program.unwrap_err().reason.contains("another name"));
        let settings = Arc::new(config).settings();
        let script = settings.agent(Provider::DEMO).unwrap();
        assert_eq!(script.args, ["runner", "demo"], "not the one of the configuration");
    }

    #[tokio::test]
    async fn an_agent_of_the_table_is_offered_where_its_program_is_and_asked_once() {
        let folder = tempfile::tempdir().unwrap();
        let asked = folder.path().join("asked");
        let put = |name: &str, says: &str| {
            let text = format!("#!/bin/sh\necho \"$0 $*\" >> {}\necho '{says}'\n", asked.display());
            std::fs::write(folder.path().join(name), text).unwrap();
            std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(0o700)).unwrap();
        };
        put("copilot", "another program 3.24.1");
        put("kimi", "kimi, version 1.49.0");
        put("agy", "1.2.12");
        put("mine", "9.9.9");
        let path = folder.path().display().to_string();
        let mut config = config_with(BTreeMap::from([("PATH".to_owned(), path)]));
        config.agents.insert("mine".to_owned(), AgentConfig::of(vec!["mine".to_owned()]));
        for name in ["agy", "copilot", "kimi", "opencode"] {
            config.agents.insert(name.to_owned(), AgentConfig::default());
        }
        let mut known = Asked::default();
        let mut offered = known.offers(&config).await.split_off(Provider::ALL.len());
        assert_eq!(known.offers(&config).await.split_off(Provider::ALL.len()), offered);
        offered.sort_by_key(|offer| offer.provider);
        let said = offered.iter().map(|offer| {
            let reason = offer.program.as_ref().err().map_or("", |not| not.reason.as_str());
            (offer.provider.as_str(), offer.version.as_deref(), reason.to_owned())
        });
        let said: Vec<_> = said.collect();
        assert_eq!(
            said.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
            ["agy", "copilot", "kimi", "mine", "opencode"]
        );
        assert!(said[0].2.contains("its terms allow") && said[1].2.contains("another program"), "{said:?}");
        assert_eq!((&said[2].1, &*said[2].2, &said[3].1, &*said[3].2), (&Some("1.49.0"), "", &None, ""));
        assert_eq!(said[4].2, "there is no agent opencode on this computer: `npm install -g opencode-ai`");
        let asked = std::fs::read_to_string(asked).unwrap();
        let asked = ["agy", "copilot", "kimi", "mine"].map(|name| asked.matches(&format!("/{name} --version")).count());
        assert_eq!(asked, [0, 1, 1, 0], "one that is not started is not asked, and neither is an unknown command");
    }

    #[test]
    fn runner_yaml_changes_an_agent_of_the_table_and_adds_others() {
        let mut config = config_with(BTreeMap::new());
        let of = |config: &Config, name: &str| {
            let agent = config.agent(name)?.0;
            Ok::<_, String>((agent.kind, agent.program.display().to_string(), agent.args, agent.env))
        };
        let droid = of(&config, "droid").unwrap();
        assert_eq!(
            (droid.0, &*droid.1, droid.2.join(" ")),
            (Kind::Acp, "droid", "exec --output-format acp-daemon".to_owned())
        );
        assert_eq!(droid.3["DROID_DISABLE_AUTO_UPDATE"], "true");
        assert_eq!(of(&config, "opencode").unwrap().0, Kind::Opencode);
        assert!(of(&config, "amp").unwrap_err().contains("amp-acp"));
        assert!(of(&config, "none").unwrap_err().starts_with("there is no agent none on this computer"));
        for (name, command) in [("amp", "amp-acp"), ("opencode", "opencode serve"), ("qwen", "")] {
            let command = command.split_whitespace().map(str::to_owned).collect();
            config.agents.insert(name.to_owned(), AgentConfig::of(command));
        }
        assert_eq!(of(&config, "amp").unwrap().1, "amp-acp");
        assert_eq!(of(&config, "opencode").unwrap().0, Kind::Acp);
        assert_eq!(of(&config, "qwen").unwrap().2, ["--acp"]);
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
