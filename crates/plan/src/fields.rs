//! The fields of a plan as the interface has them, or what is wrong with them.

use std::path::{Component, Path, PathBuf};

use ensemble_types::runs::Provider;
use ensemble_types::text::Text;

use super::cost::{BOUNDS_OF_COST, is_cost};
use super::{TIMEOUTS, Variables, duration};

pub(super) fn optional<const MIN: usize, const MAX: usize>(
    text: Option<String>,
) -> Result<Option<Text<MIN, MAX>>, String> {
    text.map(Text::new).transpose().map_err(|error| error.to_string())
}

pub(super) fn tools(names: Option<Vec<String>>) -> Result<Option<Vec<Text<1, 256>>>, String> {
    let texts = names.map(|names| names.into_iter().map(Text::new).collect::<Result<Vec<_>, _>>()).transpose();
    texts.map_err(|error| format!("a pattern in allowedTools {error}"))
}

pub(super) fn doing_tasks(provider: Option<Provider>) -> Result<Option<Provider>, String> {
    match provider {
        Some(provider) if provider.as_str() == Provider::DEMO => {
            Err("demo is the script of `ensemble demo` and does no tasks. Name another provider".to_owned())
        }
        provider => Ok(provider),
    }
}

pub(super) fn checked_cost(max: Option<f64>) -> Result<Option<f64>, String> {
    match max {
        Some(max) if !is_cost(max) => Err(format!("maxCostUsd {BOUNDS_OF_COST}, not {max}")),
        max => Ok(max),
    }
}

pub(super) fn milliseconds(text: Option<&str>, number: Option<u64>) -> Result<Option<u64>, String> {
    match (text, number) {
        (Some(_), Some(_)) => Err("it has both a timeout and a timeoutMs".to_owned()),
        (Some(text), None) => duration(text)
            .filter(|time| TIMEOUTS.contains(time))
            .map(|duration| u64::try_from(duration.as_millis()).ok())
            .ok_or_else(|| format!("the timeout {text:?} must be 1s to 24h, like 90s, 10m or 2h")),
        (None, number) => Ok(number),
    }
}

pub(super) fn filled(path: &Path, variables: &Variables) -> Result<PathBuf, String> {
    match path.to_str() {
        Some(text) => variables.fill(text).map(PathBuf::from),
        None => Err("the working directory is not UTF-8".to_owned()),
    }
}

/// `directory` relative to `here`, without `.` and `..`, because the service only accepts absolute paths.
pub(super) fn absolute(here: &Path, directory: Option<&Path>) -> Result<Text<1, 4_096>, String> {
    let mut path = PathBuf::new();
    for part in here.join(directory.unwrap_or(Path::new("."))).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    let text = path.to_str().ok_or("the working directory is not UTF-8")?;
    Text::new(text).map_err(|error| format!("the working directory {error}"))
}
