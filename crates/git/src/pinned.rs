//! A copy of what counts of a repository's configuration, in a folder that stands for what its working trees share.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::scratch::private_dir;

/// What git finds there. The rest has no part in a comparison.
const SHARED: [&str; 6] = ["objects", "refs", "packed-refs", "reftable", "info", "shallow"];
/// How files are read, ignored and written, and what remotes and branches are. None of it runs a program.
const KEPT: [&str; 22] = [
    "core.attributesfile",
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.checkstat",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.repositoryformatversion",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "core.trustctime",
    "extensions.objectformat",
    "extensions.refstorage",
    "remote.url",
    "remote.fetch",
    "branch.remote",
    "branch.merge",
];

/// # Errors
/// It cannot be written.
pub(crate) fn make(into: &Path, common: &Path, config: &[u8]) -> io::Result<()> {
    private_dir(into)?;
    fs::write(into.join("config"), config)?;
    SHARED.iter().try_for_each(|name| symlink(common.join(name), into.join(name)))
}

/// A configuration of what is kept, from a list with scopes.
pub(crate) fn config(list: &[u8]) -> Vec<u8> {
    let (mut config, mut fields) = (Vec::new(), list.split(|byte| *byte == 0));
    while let (Some(scope), Some(setting)) = (fields.next(), fields.next()) {
        if !matches!(scope, b"local" | b"worktree") {
            continue;
        }
        let mut parts = setting.splitn(2, |byte| *byte == b'\n');
        // Without a value it is true.
        let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"true"));
        let mut parts = key.splitn(2, |byte| *byte == b'.');
        let (section, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // Remotes and branches have names.
        let mut parts = rest.rsplitn(2, |byte| *byte == b'.');
        let (name, of) = (parts.next().unwrap_or_default(), parts.next());
        let key = [section, b".", name].concat();
        if !KEPT.iter().any(|kept| kept.as_bytes() == key) {
            continue;
        }
        config.extend([b"[".as_slice(), section].concat());
        config.extend(of.map(|of| [b" ".as_slice(), &quoted(of)].concat()).unwrap_or_default());
        config.extend([b"]\n\t".as_slice(), name, b" = ", &quoted(value), b"\n"].concat());
    }
    config
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in text {
        match byte {
            b'\n' => quoted.extend(b"\\n"),
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_runs_a_program_is_kept() {
        let list = b"system\0core.eol\nlf\0local\0core.eol\ncrlf\0local\0filter.f.clean\nx\0local\0core.fsmonitor\nx\0\
                     worktree\0core.filemode\0local\0remote.a.b\"c.url\nq\\\"\nz\0local\0remote.o.uploadpack\nx\0";
        let expected = "[core]\n\teol = \"crlf\"\n[core]\n\tfilemode = \"true\"\n\
                        [remote \"a.b\\\"c\"]\n\turl = \"q\\\\\\\"\\nz\"\n";
        assert_eq!(String::from_utf8(config(list)).unwrap(), expected);
    }
}
