//! A server that was restored from a backup: what it lacks is sent again, and what people send from now on is read again.

use super::*;

const RESTORED: &str = "The server has an older state of this session than before, as after a restored backup. This machine sends again what it \
                        has said in the last 7 days; what the agent did stays done. What people have sent in between is missing here. Prompts that \
                        got no answer: send them again.";

impl Core {
    /// The server has no message after `last` any more, and those after `after` come again. What people send from now on gets the numbers of
    /// those that are lost.
    pub(crate) fn restored(&mut self, after: i64, last: i64) {
        if last < self.kept.seen {
            self.go_back(self.kept.confirmed(), after, last);
        }
    }

    /// The server lacks messages of this machine. False: that is known already.
    pub(crate) fn lacks(&mut self, lacks: &Lacks) -> bool {
        let is_new = self.kept.behind.as_ref().map(|behind| behind.from) == lacks.known;
        if is_new {
            self.go_back(lacks.upto, lacks.after, lacks.last);
        }
        is_new
    }

    fn go_back(&mut self, upto: u64, after: i64, last: i64) {
        self.change(Change::Restored(after.min(self.kept.seen)));
        self.comes_again = last;
        let before = self.kept.behind.clone();
        let behind = Behind::again(before.as_ref(), upto, self.now);
        let is_to_be_said = behind.is_to_be_said(before.as_ref());
        self.change(Change::Behind(behind));
        if is_to_be_said {
            self.fail(ErrorCode::Unknown, RESTORED);
        }
    }

    /// The server has again what it lacked at that time.
    pub(crate) fn sent_again(&mut self, from: Timestamp) {
        let over = self.kept.behind.as_ref().filter(|behind| behind.from == from).map(Behind::is_over);
        over.into_iter().for_each(|behind| self.change(Change::Behind(behind)));
    }
}
