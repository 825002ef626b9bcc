//! Texts with a size limit, for summaries and messages.

/// A text that stops growing at its limit, and is then marked.
#[derive(Debug)]
pub(crate) struct Excerpt {
    kept: String,
    limit: usize,
    is_truncated: bool,
}

const MARK: &str = "…";

impl Excerpt {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { kept: String::new(), limit, is_truncated: false }
    }

    pub(crate) fn start(&mut self, text: &str) {
        self.kept.clear();
        self.is_truncated = false;
        self.push(text);
    }

    pub(crate) fn push(&mut self, text: &str) {
        if self.is_truncated {
            return;
        }
        let room = self.limit - MARK.len() - self.kept.len();
        let fits = text.get(..floor_char_boundary(text, room)).unwrap_or_default();
        self.is_truncated = fits.len() < text.len();
        self.kept.push_str(fits);
    }

    pub(crate) fn text(&self) -> Option<String> {
        (!self.kept.is_empty()).then(|| format!("{}{}", self.kept, if self.is_truncated { MARK } else { "" }))
    }
}

/// At most `bytes` of a text, marked if it was longer.
pub(crate) fn excerpt(text: &str, bytes: usize) -> String {
    let mut excerpt = Excerpt::new(bytes);
    excerpt.push(text);
    excerpt.text().unwrap_or_default()
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A text on one line of at most 200 characters.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(200) {
        Some((at, _)) => format!("{}{MARK}", line.get(..at).unwrap_or_default()),
        None => line,
    }
}
