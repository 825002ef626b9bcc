//! The stage: a process that reduces its own rights and then becomes the provider's program.
//!
//! A separate process can do this in safe code; the same between fork and exec would need unsafe code.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;

use super::orders::{Directory, EXIT_STAGE, Launch, Limits};

type Result<T> = std::result::Result<T, String>;

/// Returns only on failure.
pub(super) fn become_program() -> i32 {
    match prepare() {
        Ok(launch) => {
            let Launch { program, args, env, .. } = launch;
            let error = Command::new(&program).args(args).env_clear().envs(env).exec();
            eprintln!("cannot start {}: {error}", program.display());
        }
        Err(reason) => eprintln!("{reason}"),
    }
    EXIT_STAGE
}

fn prepare() -> Result<Launch> {
    let launch = read_launch()?;
    tie_to_parent()?;
    if launch.no_new_privileges {
        give_up_privileges()?;
    }
    set_limits(launch.limits)?;
    // The program must not inherit the signals that the runner, or the runner's parent, has blocked.
    SigSet::empty().thread_set_mask().map_err(|error| format!("cannot reset the signal mask: {error}"))?;
    enter(&launch.directory)?;
    Ok(launch)
}

/// Reads exactly the launch from standard input. The prompt follows it and belongs to the program.
fn read_launch() -> Result<Launch> {
    let wrong = |error: std::io::Error| format!("cannot read what to start: {error}");
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(wrong)?;
    let mut input = std::fs::File::from(input);
    let mut length = [0; 4];
    input.read_exact(&mut length).map_err(wrong)?;
    let mut launch = Vec::new();
    input.take(u64::from(u32::from_be_bytes(length))).read_to_end(&mut launch).map_err(wrong)?;
    serde_json::from_slice(&launch).map_err(|error| format!("cannot read what to start: {error}"))
}

fn set_limits(limits: Limits) -> Result<()> {
    set_limit(Resource::RLIMIT_CORE, Some(0))?;
    set_limit(Resource::RLIMIT_NOFILE, limits.open_files)?;
    set_limit(Resource::RLIMIT_FSIZE, limits.file_bytes)?;
    #[cfg(target_os = "linux")]
    set_limit(Resource::RLIMIT_NPROC, limits.processes)?;
    Ok(())
}

fn set_limit(resource: Resource, limit: Option<u64>) -> Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    setrlimit(resource, limit, limit).map_err(|error| format!("cannot set {resource:?} to {limit}: {error}"))
}

/// Enters the directory so that a symbolic link that was added after the check cannot lead out of the root.
#[cfg(target_os = "linux")]
fn enter(directory: &Directory) -> Result<()> {
    use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let beneath = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let below = if directory.below.as_os_str().is_empty() { Path::new(".") } else { &directory.below };
    let entered = openat2(AT_FDCWD, &directory.root, OpenHow::new().flags(flags))
        .and_then(|root| openat2(&root, below, OpenHow::new().flags(flags).resolve(beneath)))
        .and_then(|entered| nix::unistd::fchdir(&entered));
    match entered {
        Ok(()) => Ok(()),
        // Kernels before 5.6.
        Err(nix::Error::ENOSYS) => enter_and_look(directory),
        Err(error) => Err(refused(directory, &error)),
    }
}

#[cfg(not(target_os = "linux"))]
fn enter(directory: &Directory) -> Result<()> {
    enter_and_look(directory)
}

/// Enters the directory and compares the resulting path. Neither part contained a symbolic link, so a different path
/// means that one was added.
fn enter_and_look(directory: &Directory) -> Result<()> {
    let path = directory.root.join(&directory.below);
    let entered = nix::unistd::chdir(&path).and_then(|()| nix::unistd::getcwd());
    match entered {
        Ok(place) if place == path => Ok(()),
        Ok(_) => Err(refused(directory, &nix::Error::ELOOP)),
        Err(error) => Err(refused(directory, &error)),
    }
}

fn refused(directory: &Directory, error: &nix::Error) -> String {
    format!("cannot enter the working directory {}: {error}", directory.root.join(&directory.below).display())
}

/// Makes the program die when the guard is killed.
#[cfg(target_os = "linux")]
fn tie_to_parent() -> Result<()> {
    let before = nix::unistd::getppid();
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(|error| format!("cannot tie the program to its guard: {error}"))?;
    // The guard may have died before the line above. In that case this process has a new parent.
    if nix::unistd::getppid() == before { Ok(()) } else { Err("the guard has died".to_owned()) }
}

#[cfg(not(target_os = "linux"))]
fn tie_to_parent() -> Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn give_up_privileges() -> Result<()> {
    nix::sys::prctl::set_no_new_privs().map_err(|error| format!("cannot give up privileges: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn give_up_privileges() -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_swapped_in_after_the_check_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("outside")).unwrap();
        std::fs::create_dir_all(root.join("allowed/inner")).unwrap();
        for (link, below) in [("allowed/leaf", "leaf"), ("allowed/middle", "middle/inner")] {
            std::os::unix::fs::symlink(root.join("outside"), root.join(link)).unwrap();
            std::fs::create_dir_all(root.join("outside/inner")).unwrap();
            let directory = Directory { root: root.join("allowed"), below: below.into() };
            assert!(enter(&directory).unwrap_err().contains("cannot enter the working directory"));
        }
    }
}
