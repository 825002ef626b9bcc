//! What is being written in a session, kept on disk: a program that is killed loses at most a second of it.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use ensemble_types::ids::SessionId;

use crate::error::Result;
use crate::home::Home;

/// How long after its last change a text is written to disk.
const AFTER: Duration = Duration::from_secs(1);
/// The sessions whose texts are kept. The oldest go.
const MOST: usize = 100;
const FOLDER: &str = "drafts";

/// The text of one screen.
pub struct Draft<'a> {
    home: &'a Home,
    session: SessionId,
    /// What is on disk, and what is to be there.
    kept: String,
    text: String,
    due: Option<Instant>,
}

impl<'a> Draft<'a> {
    /// The draft of a session, with what an earlier screen has left.
    pub fn open(home: &'a Home, session: SessionId) -> Self {
        tidy(home);
        // Without it a person begins with an empty field.
        let kept = fs::read_to_string(home.path().join(name(session))).unwrap_or_default();
        Self { home, session, text: kept.clone(), kept, due: None }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Looks whether the text has changed. One that is on its way stays until it has arrived.
    pub fn follow(&mut self, text: String, is_on_its_way: bool) {
        if !text.is_empty() || !is_on_its_way {
            self.text = text;
        }
        self.due = match self.text.as_str() {
            text if text == self.kept => None,
            // What was sent must not be offered again.
            "" => Some(Instant::now()),
            _ => self.due.or(Some(Instant::now() + AFTER)),
        };
    }

    /// When the text is to be kept.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Keeps the text. A disk that is full loses no more than a draft.
    pub fn keep(&mut self) {
        self.due = None;
        if self.text == self.kept {
            return;
        }
        let _unwritable = if self.text.is_empty() {
            self.home.forget_draft(self.session)
        } else {
            self.home.write_secret(&self.home.path().join(name(self.session)), self.text.as_bytes())
        };
        self.kept.clone_from(&self.text);
    }
}

impl Home {
    /// Removes what was being written in a session, also what a program that was killed has not yet moved into place.
    pub fn forget_draft(&self, session: SessionId) -> Result<()> {
        let session = session.to_string();
        let files = fs::read_dir(self.path().join(FOLDER)).into_iter().flatten().flatten();
        let written = |file: &fs::DirEntry| file.path().file_stem().is_some_and(|stem| *stem == *session);
        files.filter(written).try_for_each(|file| self.remove(&format!("{FOLDER}/{}", file.file_name().display())))
    }
}

fn name(session: SessionId) -> String {
    format!("{FOLDER}/{session}")
}

/// Leaves the newest texts. What cannot be read or removed now is tried again by the next screen.
fn tidy(home: &Home) {
    let files = fs::read_dir(home.path().join(FOLDER)).into_iter().flatten().flatten();
    let changed = |file: &fs::DirEntry| file.metadata().and_then(|data| data.modified());
    let mut files: Vec<_> = files.map(|file| (changed(&file).unwrap_or(SystemTime::UNIX_EPOCH), file.path())).collect();
    files.sort_unstable_by(|one, other| other.cmp(one));
    for (_, file) in files.iter().skip(MOST) {
        let _unremovable = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> SessionId {
        format!("01a20224-f47c-7000-8000-{number:012}").parse().unwrap()
    }

    #[test]
    fn a_text_is_kept_once_a_second_and_goes_when_it_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::of_test(folder.path().to_owned());
        let mut draft = Draft::open(&home, id(1));
        assert_eq!((draft.text(), draft.due()), ("", None));
        draft.follow("a".to_owned(), false);
        let due = draft.due().unwrap();
        draft.follow("ab".to_owned(), false);
        assert_eq!(draft.due(), Some(due), "more typing does not put it off");
        draft.keep();
        assert_eq!(draft.due(), None);
        assert_eq!((Draft::open(&home, id(1)).text(), Draft::open(&home, id(2)).text()), ("ab", ""));
        draft.follow(String::new(), true);
        draft.keep();
        assert_eq!(Draft::open(&home, id(1)).text(), "ab", "it may not arrive");
        draft.follow(String::new(), false);
        fs::write(folder.path().join(FOLDER).join(format!("{}.new77", id(1))), "ab").unwrap();
        draft.keep();
        assert_eq!(Draft::open(&home, id(1)).text(), "");
        assert!(fs::read_dir(folder.path().join(FOLDER)).unwrap().next().is_none());
    }

    #[test]
    fn the_newest_hundred_stay() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::of_test(folder.path().to_owned());
        for number in 0..120 {
            let mut draft = Draft::open(&home, id(number));
            draft.follow(number.to_string(), false);
            draft.keep();
            let file = fs::File::open(folder.path().join(name(id(number)))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number.into())).unwrap();
        }
        tidy(&home);
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), MOST);
        assert_eq!((Draft::open(&home, id(19)).text(), Draft::open(&home, id(20)).text()), ("", "20"));
    }
}
