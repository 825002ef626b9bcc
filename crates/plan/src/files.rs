//! The files of a plan, read with bounds. A plan may come from someone else, so it must not make this program send files of
//! this machine to the server.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// What the server takes as the body of one run.
pub const LONGEST_PLAN: u64 = 16 << 20;
/// A prompt has at most 65,536 characters, of at most 4 bytes.
pub const LONGEST_PROMPT: u64 = 256 << 10;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The prompt files of one plan.
#[derive(Debug)]
pub struct PromptFiles<'a> {
    /// Where the plan is.
    pub folder: &'a Path,
    /// Whether the plan may name files outside `folder`.
    pub allow_outside: bool,
    /// How much may still be read. All prompts go into one body.
    left: Cell<u64>,
}

impl<'a> PromptFiles<'a> {
    pub fn new(folder: &'a Path, allow_outside: bool) -> Self {
        Self { folder, allow_outside, left: Cell::new(LONGEST_PLAN) }
    }

    pub(super) fn read(&self, file: &Path) -> Result<String, String> {
        let named = self.folder.join(file);
        let text = self.read_inside(&named).map_err(|error| format!("{}: {error}", named.display()))?;
        let left = self.left.get().checked_sub(text.len() as u64);
        self.left.set(left.ok_or("the prompt files are longer than 16 MiB together")?);
        Ok(text)
    }

    fn read_inside(&self, named: &Path) -> io::Result<String> {
        // Without links and `..`.
        let path = fs::canonicalize(named)?;
        if !self.allow_outside && !path.starts_with(fs::canonicalize(self.folder)?) {
            return Err(io::Error::other(
                "it is outside the plan's directory. If you trust the plan, run it with --allow-outside",
            ));
        }
        read_file(&path, LONGEST_PROMPT)
    }
}

/// Reads a regular file.
pub fn read_file(path: &Path, limit: u64) -> io::Result<String> {
    // Without NONBLOCK it would wait for the writer of a named pipe.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read_text(file, limit)
}

/// Reads a text of at most `limit` bytes. Some editors put a byte order mark before it, which is no part of it.
pub fn read_text(source: impl Read, limit: u64) -> io::Result<String> {
    let mut text = Vec::new();
    source.take(limit + 1).read_to_end(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::other(format!("it is longer than {} KiB", limit >> 10)));
    }
    let mut text = String::from_utf8(text).map_err(|_| io::Error::other("it is not UTF-8"))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn files_outside_the_plans_directory_need_permission() {
        let folder = tempfile::tempdir().unwrap();
        let plans = folder.path().join("plans");
        fs::create_dir(&plans).unwrap();
        fs::write(folder.path().join("secret"), "a secret").unwrap();
        fs::write(plans.join("prompt"), "a prompt").unwrap();
        symlink("../secret", plans.join("link")).unwrap();
        let secret = folder.path().join("secret");
        let careful = PromptFiles::new(&plans, false);
        assert_eq!(careful.read(Path::new("../plans/./prompt")).unwrap(), "a prompt");
        for outside in [Path::new("../secret"), Path::new("link"), &secret] {
            let refused = careful.read(outside).unwrap_err();
            assert!(refused.contains("--allow-outside"), "{refused}");
            assert_eq!(PromptFiles::new(&plans, true).read(outside).unwrap(), "a secret");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        for (written, read) in
            [("\u{feff}do it", "do it"), ("do \u{feff}it", "do \u{feff}it"), ("\u{feff}", ""), ("", "")]
        {
            assert_eq!(read_text(written.as_bytes(), 100).unwrap(), read);
        }
    }

    #[test]
    fn only_regular_files_of_a_bounded_length_are_read() {
        let folder = tempfile::tempdir().unwrap();
        mknodat(CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::write(folder.path().join("long"), vec![b'a'; (LONGEST_PROMPT + 1) as usize]).unwrap();
        fs::write(folder.path().join("longest"), vec![b'a'; LONGEST_PROMPT as usize]).unwrap();
        let files = PromptFiles::new(folder.path(), true);
        for (file, said) in [
            ("pipe", "not a regular file"),
            ("/dev/zero", "not a regular file"),
            (".", "not a regular file"),
            ("long", "longer than 256 KiB"),
        ] {
            let refused = files.read(Path::new(file)).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        for _ in 0..LONGEST_PLAN / LONGEST_PROMPT {
            files.read(Path::new("longest")).unwrap();
        }
        assert!(files.read(Path::new("longest")).unwrap_err().contains("16 MiB together"));
    }
}
