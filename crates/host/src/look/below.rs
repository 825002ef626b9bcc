//! Reads below one directory and nothing outside of it, whatever names and links an agent or a repository has left there.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use ensemble_protocol::seal::look::Refusal;
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::ReceiptCode;
use nix::fcntl::OFlag;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::refusal;

/// Names of one directory that are read. Of more, some are missing.
const MOST_READ: usize = 100_000;
/// In the folder of the runner's state: tasks work in them, so they are not closed.
const WORKPLACES: [&str; 2] = ["worktrees", "workspaces"];

/// Which file it is, whatever its name is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&std::fs::metadata(path)?))
    }

    /// Takes over the number of the device, which can be another one after a restart of the machine. False: it is another file.
    pub(super) fn follow(&mut self, path: &Path) -> bool {
        let found = Self::of(path).ok().filter(|found| found.inode == self.inode);
        *self = found.unwrap_or(*self);
        found.is_some()
    }

    fn of_open(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }
}

impl From<&Metadata> for Identity {
    fn from(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// A directory that was opened once.
pub(super) struct Below {
    top: OwnedFd,
    path: PathBuf,
    closed: Closed,
}

/// What belongs to this program: folders and files. Nothing of it is read.
#[derive(Clone)]
pub(super) struct Closed(Vec<PathBuf>);

impl Closed {
    /// As it counts in a directory without symbolic links.
    pub(super) fn for_directory(directory: &Path, all: &[PathBuf]) -> Self {
        let mut closed: Vec<_> = all.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let is_workplace = |own: &PathBuf| WORKPLACES.iter().any(|name| is_below(directory, &own.join(name)));
        if closed.iter().any(is_workplace) {
            closed.retain(|own| !directory.starts_with(own));
        }
        Self(closed)
    }

    /// Whether it is closed, or belongs to git.
    pub(super) fn has(&self, real: &Path) -> bool {
        self.0.iter().any(|own| real.starts_with(own)) || real.iter().any(|part| part.eq_ignore_ascii_case(".git"))
    }
}

fn is_below(path: &Path, folder: &Path) -> bool {
    path != folder && path.starts_with(folder)
}

/// A name in a directory.
pub(super) struct Name {
    pub(super) bytes: Vec<u8>,
    pub(super) kind: FileType,
    /// Of a file.
    pub(super) size: Option<u64>,
}

impl Below {
    /// # Errors
    /// The directory is not there any more, or another one is in its place.
    pub(super) fn open(directory: &Path, known: Identity, closed: &[PathBuf]) -> Result<Self, Refusal> {
        let gone = || {
            refusal(ReceiptCode::Superseded, "The directory of this session is gone. Begin a session in another one.")
        };
        let top =
            File::options().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(directory).map_err(|_| gone())?;
        if Identity::of_open(&top).map_err(|_| gone())? != known {
            let text =
                "Another directory is in the place of the one in which this session began. Begin a session there.";
            return Err(refusal(ReceiptCode::Superseded, text));
        }
        let top = OwnedFd::from(top);
        let path = real(&top).map_err(|_| gone())?;
        let closed = Closed::for_directory(&path, closed);
        Ok(Self { top, path, closed })
    }

    /// The directory itself, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A regular file, and where it really is below the directory.
    ///
    /// # Errors
    /// It cannot be shown.
    pub(super) fn file(&self, path: &str) -> Result<(File, PathBuf), Refusal> {
        let (file, real) = self.find(path, OFlags::empty())?;
        let kind = fstat(&file).map(|found| FileType::from_raw_mode(found.st_mode));
        if kind != Ok(FileType::RegularFile) {
            return Err(refusal(ReceiptCode::Unsupported, "It is no regular file, so it cannot be shown."));
        }
        Ok((file.into(), real))
    }

    /// A directory, and where it really is. An empty path is the directory itself.
    ///
    /// # Errors
    /// It cannot be shown.
    pub(super) fn directory(&self, path: &str) -> Result<(OwnedFd, PathBuf), Refusal> {
        self.find(if path.is_empty() { "." } else { path }, OFlags::DIRECTORY)
    }

    fn find(&self, path: &str, flags: OFlags) -> Result<(OwnedFd, PathBuf), Refusal> {
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || !Path::new(path).components().all(is_plain) || shown(path.as_bytes()).is_err() {
            return Err(refusal(ReceiptCode::Unsupported, "It is no path that can be opened."));
        }
        self.find_any(Path::new(path), flags)
    }

    /// The same with a path that was not asked for.
    pub(super) fn find_any(&self, path: &Path, flags: OFlags) -> Result<(OwnedFd, PathBuf), Refusal> {
        let opened = open_below(&self.top, path, flags).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => refusal(ReceiptCode::Superseded, "It is not there any more."),
            Errno::XDEV | Errno::LOOP => refusal(
                ReceiptCode::NotAllowed,
                "A link leads out of the session's directory. Only what is below it is shown.",
            ),
            Errno::ACCESS | Errno::PERM => refusal(ReceiptCode::NotAllowed, "The machine's user may not read it."),
            Errno::NOSYS => {
                refusal(ReceiptCode::Unsupported, "Files are shown by Linux 5.6 or newer, which this machine lacks.")
            }
            error => refusal(ReceiptCode::Unsupported, &format!("It cannot be opened: {error}.")),
        })?;
        let hidden =
            || refusal(ReceiptCode::NotAllowed, "What belongs to git, to Ensemble or to the kernel is not shown.");
        let real = real(&opened).map_err(|_| hidden())?;
        if self.closed.has(&real) || is_of_kernel(&opened) {
            return Err(hidden());
        }
        let below = real.strip_prefix(&self.path).map_err(|_| hidden())?.to_owned();
        Ok((opened, below))
    }

    pub(super) fn closed(&self) -> &Closed {
        &self.closed
    }
}

/// What is in a directory.
#[derive(Default)]
pub(super) struct Listed {
    /// In their order, without `.git`.
    pub(super) names: Vec<Name>,
    /// Some are missing.
    pub(super) more: bool,
    /// It has a `.git`.
    pub(super) is_repository: bool,
}

pub(super) fn list(directory: &OwnedFd) -> io::Result<Listed> {
    let mut listed = Listed::default();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if bytes.eq_ignore_ascii_case(b".git") {
            listed.is_repository = true;
        }
        if matches!(bytes, b"." | b"..") || bytes.eq_ignore_ascii_case(b".git") {
            continue;
        }
        if listed.names.len() == MOST_READ {
            listed.more = true;
            break;
        }
        listed.names.push(Name { bytes: bytes.to_vec(), kind: entry.file_type(), size: None });
    }
    listed.names.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
    Ok(listed)
}

impl Name {
    /// Looks for what its directory does not say of it.
    pub(super) fn look(&mut self, directory: &OwnedFd) {
        if !matches!(self.kind, FileType::RegularFile | FileType::Unknown) {
            return;
        }
        if let Ok(found) = statat(directory, &*self.bytes, AtFlags::SYMLINK_NOFOLLOW) {
            self.kind = FileType::from_raw_mode(found.st_mode);
            self.size = u64::try_from(found.st_size).ok().filter(|_| self.kind == FileType::RegularFile);
        }
    }
}

/// A name or path as people see it. The error is one that cannot be opened.
pub(super) fn shown(bytes: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let shown = visible(&text).replace('\n', "\\u{a}").replace('\t', "\\u{9}");
    if shown.as_bytes() == bytes { Ok(shown) } else { Err(shown) }
}

#[cfg(target_os = "linux")]
fn open_below(top: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    /// Of a path that is renamed meanwhile.
    const TRIES: usize = 4;
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        opened = openat2(top, path, flags, Mode::empty(), resolve);
        if opened.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
    }
    opened
}

#[cfg(not(target_os = "linux"))]
fn open_below(top: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW_ANY;
    rustix::fs::openat(top, path, flags, Mode::empty())
}

#[cfg(target_os = "linux")]
fn real(file: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn real(file: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = rustix::fs::getpath(file)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())))
}

/// Whether it is on a file system with which the kernel shows itself (statfs(2)).
#[cfg(target_os = "linux")]
fn is_of_kernel(file: &OwnedFd) -> bool {
    // proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2.
    const KERNEL: [i64; 7] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0x27_e0eb, 0x6367_7270];
    rustix::fs::fstatfs(file).is_ok_and(|found| KERNEL.contains(&found.f_type))
}

#[cfg(not(target_os = "linux"))]
fn is_of_kernel(_: &OwnedFd) -> bool {
    false
}
