//! How an agent of a machine is started, and what it inherits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_agent::{Kind, known};

use crate::settings::{Environment, search_path};

/// An agent of this machine.
#[derive(Clone, Debug)]
pub struct Known {
    pub kind: Kind,
    pub program: PathBuf,
    /// Before the arguments that the driver needs, and after them.
    pub args: Vec<String>,
    pub last_args: Vec<String>,
    /// The variables that the configuration sets.
    pub env: BTreeMap<String, String>,
    /// Variables to inherit. `NAME*` is a prefix.
    pub pass_env: Vec<String>,
}

impl Known {
    /// Its program: a path of the configuration, or a name on the search path of this environment. What is below the directory in which it
    /// works does not count, because an agent or a repository may have put it there. Of a home directory everything counts.
    ///
    /// # Errors
    /// It is not there. The text is for people.
    pub fn find(&self, environment: &Environment, directory: Option<&Path>) -> Result<PathBuf, String> {
        let home = environment.get("HOME").and_then(|home| Path::new(home).canonicalize().ok());
        let outside = directory.filter(|directory| home.as_ref().is_none_or(|home| !home.starts_with(directory)));
        ensemble_process::find(&self.program, search_path(environment), outside).map_err(|why| {
            let known = known::ALL.iter().find(|known| Path::new(known.program) == self.program);
            known.map_or(why, |known| format!("there is no agent {} on this computer: `{}`", known.name, known.install))
        })
    }

    /// The variables of its process, with what it may inherit from this environment. What its driver needs counts more than that, and
    /// what the configuration sets counts most.
    pub fn env(&self, environment: &Environment, launch: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = inherited_env(&self.pass_env, environment);
        env.extend(launch.clone());
        env.extend(self.env.clone());
        env
    }
}

/// The variables that a program inherits of this environment.
pub fn inherited_env(pass_env: &[String], environment: &Environment) -> BTreeMap<String, String> {
    let may_pass = |name: &str| {
        // Our own variables include the machine's token, so none of them is passed on.
        !name.starts_with("ENSEMBLE_")
            && !OF_A_REPOSITORY.contains(&name)
            && pass_env.iter().any(|pattern| covers(pattern, name))
    };
    let inherited = environment.iter().filter(|(name, _)| may_pass(name));
    let mut env: BTreeMap<String, String> = inherited.map(|(name, value)| (name.clone(), value.clone())).collect();
    env.insert("NO_COLOR".to_owned(), "1".to_owned());
    env
}

/// What `git rev-parse --local-env-vars` prints, and what git gives to hooks: they say where a repository is, and would lead the
/// commits of an agent from its directory into another one.
const OF_A_REPOSITORY: [&str; 18] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            kind: Kind::Claude,
            program: PathBuf::from("claude"),
            args: Vec::new(),
            last_args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: vec!["*".to_owned()],
        }
    }

    #[test]
    fn the_configuration_counts_more_than_the_driver_and_that_more_than_what_is_inherited() {
        let variables = |value: &str| ["A", "B", "C"].map(|name| (name.to_owned(), value.to_owned()));
        let known = Known { env: variables("configured").into_iter().take(1).collect(), ..known() };
        let launch = variables("launched").into_iter().take(2).collect();
        let env = known.env(&variables("inherited").into(), &launch);
        assert_eq!(["A", "B", "C"].map(|name| env[name].as_str()), ["configured", "launched", "inherited"]);
    }

    #[test]
    fn a_program_counts_below_a_home_directory_and_not_below_another_directory_of_work() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let bin = home.join("project/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("goose"), "").unwrap();
        std::fs::set_permissions(bin.join("goose"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let variables = [("HOME", home.display()), ("PATH", bin.display())];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_string())).into();
        let mut known = known();
        known.program = PathBuf::from("goose");
        assert_eq!(known.find(&environment, Some(&home)), Ok(bin.join("goose")));
        let why = known.find(&environment, Some(&home.join("project"))).unwrap_err();
        assert!(why.starts_with("there is no agent goose on this computer: `curl "), "{why}");
        known.program = PathBuf::from("goose-2");
        assert!(known.find(&environment, None).unwrap_err().contains("goose-2 is not on the search path"));
    }

    #[test]
    fn no_variable_says_where_a_repository_is() {
        let listed = std::process::Command::new("git").args(["rev-parse", "--local-env-vars"]).output().unwrap().stdout;
        let mut names: Vec<String> = String::from_utf8(listed).unwrap().lines().map(str::to_owned).collect();
        assert!(names.len() > 10, "{names:?}");
        names.push("GIT_QUARANTINE_PATH".to_owned());
        names.push("GIT_AUTHOR_NAME".to_owned());
        let environment: Environment = names.into_iter().map(|name| (name, "x".to_owned())).collect();
        for pass_env in [vec!["GIT_*"], vec!["*"], vec!["GIT_*", "GIT_DIR"]] {
            let pass_env: Vec<String> = pass_env.into_iter().map(str::to_owned).collect();
            let passed: Vec<String> = inherited_env(&pass_env, &environment).into_keys().collect();
            assert_eq!(passed, ["GIT_AUTHOR_NAME", "NO_COLOR"]);
        }
    }
}
