//! What the server has confirmed, kept for a server that is restored from a backup.
//!
//! It is in the logs that were folded: each is kept as a segment, so that letting go of the oldest messages costs one unlink.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ensemble_process::disk::on_disk;

use super::super::kept::{Change, Outgoing};
use super::log_number;
use crate::wake::wall_clock;

/// A segment goes when its newest message is older than this.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Bytes of the segments of one session. With the log that is written they are 64 MiB.
const MOST_OF_SESSION: u64 = 60 << 20;
/// Bytes of the segments of all sessions.
const MOST_OF_ALL: u64 = 512 << 20;
/// Between two looks at the sessions to which nothing is written.
const SWEPT_EVERY: Duration = Duration::from_secs(3_600);

/// Keeps the logs that were folded into the snapshot of this generation, also those that could not be kept before.
///
/// # Errors
/// The first one. The other logs are kept all the same.
pub(super) fn keep(folder: &Path, generation: u64) -> io::Result<()> {
    let mut kept = Ok(());
    for (number, log) in numbered(folder, log_number)? {
        if number < generation {
            kept = kept.and(fs::rename(log, folder.join(format!("sent-{number}.jsonl"))));
        }
    }
    kept
}

/// The generation of a segment.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix("sent-")?.strip_suffix(".jsonl")?.parse().ok()
}

/// Lets go of segments that are old or too many, for as long as the program runs.
pub(crate) async fn watch(sessions: PathBuf) {
    let mut has_said = false;
    loop {
        let sessions = sessions.clone();
        if let Err(error) = on_disk(move || sweep(&sessions, wall_clock())).await
            && !std::mem::replace(&mut has_said, true)
        {
            tracing::warn!("Old messages of sessions cannot be removed: {error}");
        }
        tokio::time::sleep(SWEPT_EVERY).await;
    }
}

/// Removes what is too old, then the oldest of what is too much.
///
/// # Errors
/// The first one. The other sessions are swept all the same.
pub(super) fn sweep(sessions: &Path, now: SystemTime) -> io::Result<()> {
    let (mut left, mut swept) = (Vec::new(), Ok(()));
    for session in fs::read_dir(sessions)? {
        let found = session.and_then(|session| segments(&session.path()));
        let is_old = |(written, ..): &Segment| now.duration_since(*written).is_ok_and(|age| age > KEPT_FOR);
        swept = swept.and(found.and_then(|found| remove(found, MOST_OF_SESSION, is_old, &mut left)));
    }
    left.sort_unstable();
    swept.and(remove(left, MOST_OF_ALL, |_| false, &mut Vec::new()))
}

/// When it was written last, its number, its bytes and its path.
type Segment = (SystemTime, u64, u64, PathBuf);

/// The segments of a session, the oldest first.
fn segments(session: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for (number, path) in numbered(session, segment_number)? {
        // Another session sweeps at the same time, or this one is deleted.
        if let Some(about) = if_there(fs::metadata(&path))? {
            found.push((about.modified()?, number, about.len(), path));
        }
    }
    Ok(found)
}

/// Removes the old ones and the first of what is more than `most` bytes. The others are added to `left`.
fn remove(
    segments: Vec<Segment>,
    most: u64,
    is_old: impl Fn(&Segment) -> bool,
    left: &mut Vec<Segment>,
) -> io::Result<()> {
    let mut size: u64 = segments.iter().map(|(_, _, bytes, _)| bytes).sum();
    let mut removed = Ok(());
    for segment in segments {
        if size <= most && !is_old(&segment) {
            left.push(segment);
            continue;
        }
        let (_, _, bytes, path) = segment;
        match if_there(fs::remove_file(path)) {
            Ok(_) => size -= bytes,
            Err(error) => removed = removed.and(Err(error)),
        }
    }
    removed
}

fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// The files of a folder that have a number, lowest first. None where there is no such folder.
fn numbered(folder: &Path, number: impl Fn(&str) -> Option<u64>) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        found.extend(entry.file_name().to_str().and_then(&number).map(|number| (number, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads the messages of a session again, in their order.
#[derive(Debug)]
pub(crate) struct History {
    files: VecDeque<PathBuf>,
    open: Option<BufReader<File>>,
    read: VecDeque<Outgoing>,
    /// The count of the last message that was read.
    after: u64,
    upto: u64,
}

impl History {
    /// Those with a count above `after` and up to `upto`.
    pub(crate) fn open(folder: &Path, after: u64, upto: u64) -> io::Result<Self> {
        let files = numbered(folder, |name| segment_number(name).or_else(|| log_number(name)))?;
        let files = files.into_iter().map(|(_, path)| path).collect();
        Ok(Self { files, open: None, read: VecDeque::new(), after, upto })
    }

    /// The next ones: at least one while there are some, and then as many as these bounds allow.
    ///
    /// # Errors
    /// The disk cannot be read now, or a file was folded or removed meanwhile. Another [`History`] may find all of it.
    pub(crate) fn next(&mut self, most: usize, most_bytes: usize) -> io::Result<Vec<Outgoing>> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while some.len() < most {
            if self.read.is_empty() && !self.read_step()? {
                break;
            }
            let Some(next) = self.read.front() else { continue };
            bytes += next.body.len();
            if bytes > most_bytes && !some.is_empty() {
                break;
            }
            some.extend(self.read.pop_front());
        }
        Ok(some)
    }

    /// Reads one line. False at the end.
    fn read_step(&mut self) -> io::Result<bool> {
        let file = match &mut self.open {
            Some(file) => file,
            None => {
                let Some(path) = self.files.pop_front().filter(|_| self.after < self.upto) else { return Ok(false) };
                self.open.insert(BufReader::new(File::open(path)?))
            }
        };
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line)?;
        // A line without an end is being written, and is newer than what is wanted.
        let Some(line) = line.strip_suffix(b"\n") else {
            self.open = None;
            return Ok(true);
        };
        // Most steps say nothing.
        if !line.windows(SAYS.len()).any(|part| part == SAYS) {
            return Ok(true);
        }
        match serde_json::from_slice::<Vec<Change>>(line) {
            Ok(step) => step.into_iter().for_each(|change| self.take(change)),
            Err(error) => tracing::error!("A part of the kept messages is damaged and left out: {error}"),
        }
        Ok(true)
    }

    fn take(&mut self, change: Change) {
        if let Change::Say(message) = change
            && message.n > self.after
            && message.n <= self.upto
        {
            self.after = message.n;
            self.read.push_back(message);
        }
    }
}

/// Begins each message in a line.
const SAYS: &[u8] = b"{\"say\":";

#[cfg(test)]
mod tests {
    use super::super::tests::{kept, say, step};
    use super::super::{Opened, Spool};
    use super::*;
    use crate::kept::Kept;

    fn all(folder: &Path, after: u64, upto: u64) -> Vec<u64> {
        let mut history = History::open(folder, after, upto).unwrap();
        let mut found = Vec::new();
        loop {
            let some = history.next(7, 1 << 20).unwrap();
            if some.is_empty() {
                return found;
            }
            found.extend(some.iter().map(|message| message.n));
        }
    }

    /// A session that has said `most` messages of 100 kB, all of them confirmed.
    fn said(sessions: &Path, most: u64) -> Kept {
        let mut kept = kept();
        let mut spool = Spool::create(sessions, &kept).unwrap();
        for n in 1..=most {
            step(&mut spool, &mut kept, vec![say(n, 100_000), Change::Seen(i64::try_from(n).unwrap())]);
            step(&mut spool, &mut kept, vec![Change::Sent(n)]);
        }
        kept
    }

    fn segments_of(sessions: &Path, kept: &Kept) -> Vec<PathBuf> {
        let found = numbered(&sessions.join(kept.session.to_string()), segment_number).unwrap();
        found.into_iter().map(|(_, path)| path).collect()
    }

    fn resize(path: &Path, bytes: u64) {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }

    #[test]
    fn what_was_confirmed_is_read_again_once_and_in_order() {
        let sessions = tempfile::tempdir().unwrap();
        let kept = said(sessions.path(), 100);
        let folder = sessions.path().join(kept.session.to_string());
        assert!(segments_of(sessions.path(), &kept).len() >= 2);
        assert_eq!(all(&folder, 0, 100), (1..=100).collect::<Vec<_>>());
        assert_eq!(all(&folder, 37, 99), (38..=99).collect::<Vec<_>>());
        assert_eq!(all(&folder, 100, 100), Vec::<u64>::new());
        // A long message goes alone, but it does go.
        let mut history = History::open(&folder, 0, 100).unwrap();
        assert_eq!(history.next(10, 250_000).unwrap().len(), 2);
        assert_eq!(history.next(10, 1).unwrap().len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_not_an_end() {
        let sessions = tempfile::tempdir().unwrap();
        let kept = said(sessions.path(), 100);
        let folder = sessions.path().join(kept.session.to_string());
        let mut history = History::open(&folder, 0, 100).unwrap();
        fs::remove_file(&segments_of(sessions.path(), &kept)[1]).unwrap();
        let read = std::iter::repeat_with(|| history.next(10, 1 << 20))
            .find(|read| read.as_ref().is_ok_and(Vec::is_empty) || read.is_err());
        assert_eq!(read.unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_old_or_too_much_goes_oldest_first() {
        let sessions = tempfile::tempdir().unwrap();
        let (first, second) = (said(sessions.path(), 200), said(sessions.path(), 100));
        let of_first = segments_of(sessions.path(), &first);
        assert!(of_first.len() >= 4);
        sweep(sessions.path(), wall_clock()).unwrap();
        assert_eq!(segments_of(sessions.path(), &first), of_first);

        // More than one session may have.
        resize(&of_first[0], 30 << 20);
        resize(&of_first[1], 40 << 20);
        sweep(sessions.path(), wall_clock()).unwrap();
        assert_eq!(segments_of(sessions.path(), &first), of_first[1..]);

        // More than all may have: each of these has less than its bound.
        let crowd: Vec<Kept> = (0..9).map(|_| said(sessions.path(), 60)).collect();
        for kept in &crowd {
            resize(&segments_of(sessions.path(), kept)[0], 58 << 20);
        }
        sweep(sessions.path(), wall_clock()).unwrap();
        let rest = [&first, &second].map(|kept| segments_of(sessions.path(), kept).len());
        assert_eq!(rest, [0, 0], "they are older than those of the others");
        assert_eq!(crowd.iter().filter(|kept| segments_of(sessions.path(), kept).len() == 1).count(), 8);

        sweep(sessions.path(), wall_clock() + KEPT_FOR / 2).unwrap();
        assert!(crowd.iter().any(|kept| !segments_of(sessions.path(), kept).is_empty()));
        sweep(sessions.path(), wall_clock() + KEPT_FOR + Duration::from_secs(60)).unwrap();
        assert!(crowd.iter().all(|kept| segments_of(sessions.path(), kept).is_empty()));
    }

    #[test]
    fn a_log_that_cannot_be_kept_is_kept_later_and_stops_nothing() {
        let sessions = tempfile::tempdir().unwrap();
        let mut kept = kept();
        let folder = sessions.path().join(kept.session.to_string());
        let mut spool = Spool::create(sessions.path(), &kept).unwrap();
        let mut say_all = |spool: &mut Spool, counts: std::ops::RangeInclusive<u64>| {
            counts.for_each(|n| step(spool, &mut kept, vec![say(n, 1 << 20)]));
            kept.clone()
        };
        let in_the_way = ["sent-0.jsonl", "sent-1.jsonl"].map(|name| folder.join(name));
        in_the_way.iter().for_each(|path| fs::create_dir_all(path.join("x")).unwrap());
        let kept = say_all(&mut spool, 1..=8);
        assert_eq!(numbered(&folder, log_number).unwrap().len(), 3, "two of them cannot be renamed");
        drop(spool);
        let Opened::Whole(mut spool, _) = Spool::open(sessions.path(), kept.session).unwrap() else {
            panic!("a session continues without it")
        };
        in_the_way.iter().for_each(|path| fs::remove_dir_all(path).unwrap());
        say_all(&mut spool, 9..=12);
        let logs = numbered(&folder, log_number).unwrap();
        assert_eq!(logs.len(), 1, "all older ones are kept: {logs:?}");
        assert_eq!(all(&folder, 0, 12), (1..=12).collect::<Vec<_>>());
    }

    #[test]
    fn a_session_that_cannot_be_swept_leaves_the_others() {
        let sessions = tempfile::tempdir().unwrap();
        for session in 0..40 {
            let segment = sessions.path().join(format!("{session}/sent-0.jsonl"));
            fs::create_dir_all(segment.parent().unwrap()).unwrap();
            // A folder in the place of a segment is not removed.
            if session % 2 == 0 { fs::create_dir(segment) } else { fs::write(segment, "") }.unwrap();
        }
        let late = wall_clock() + KEPT_FOR + Duration::from_secs(60);
        assert!(sweep(sessions.path(), late).is_err());
        let left = |session: &u32| sessions.path().join(format!("{session}/sent-0.jsonl")).exists();
        assert_eq!((0..40).filter(left).collect::<Vec<_>>(), (0..40).step_by(2).collect::<Vec<_>>());
    }
}
