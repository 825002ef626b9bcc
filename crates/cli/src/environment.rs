//! The environment of this process, as runners and agents get it.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The variables of this process that are valid text. Of the search path those folders stay that are.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok()?;
        let value = match value.into_string() {
            Ok(value) => value,
            Err(bytes) if name == "PATH" => {
                let folders = std::env::split_paths(&bytes).filter(|folder| folder.to_str().is_some());
                std::env::join_paths(folders).ok()?.into_string().ok()?
            }
            Err(_) => return None,
        };
        Some((name, value))
    };
    std::env::vars_os().filter_map(text).collect()
}
