//! Drafts of messages, and how a batch of appends numbers them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ensemble_types::ids::{MessageId, SessionId};
use ensemble_types::messages::{AppendMessage, AppendMessages, Message};
use ensemble_types::time::Timestamp;

use super::Invalid;
use super::access::{Actor, CanEdit};

/// The most messages that one call can append.
pub(crate) const MAX_DRAFTS: usize = 200;

/// What a message counts for the quota besides its content: about as much as its row and its index entries take. Without it,
/// many short messages would fill the disk and count almost nothing.
pub(crate) const ROW_BYTES: i64 = 256;

/// A message without a `seq` yet.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) local_id: String,
    pub(crate) content: String,
    pub(crate) key_epoch: Option<i64>,
}

/// The epoch of a message's key does not fit the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadEpoch {
    Wrong(Invalid),
    /// The session has a newer key.
    Old {
        current: i64,
    },
}

/// The messages of one call. All of them are stored, or none.
#[derive(Debug)]
pub(crate) struct Drafts {
    pub(crate) messages: Vec<Draft>,
    /// The body has them in `messages`, as the pointers in problems say.
    batch: bool,
}

impl Drafts {
    pub(crate) fn one(message: AppendMessage) -> Result<Self, Invalid> {
        Ok(Self { messages: vec![Draft::new(message)?], batch: false })
    }

    pub(crate) fn several(AppendMessages { messages }: AppendMessages) -> Result<Self, Invalid> {
        if !(1..=MAX_DRAFTS).contains(&messages.len()) {
            let detail = format!("must hold 1 to {MAX_DRAFTS} messages, not {}", messages.len());
            return Err(Invalid::new("/messages", detail));
        }
        let drafts = messages.into_iter().enumerate().map(|(at, message)| {
            Draft::new(message).map_err(|i| Invalid::new(format!("/messages/{at}{}", i.pointer), i.detail))
        });
        Ok(Self { messages: drafts.collect::<Result<_, _>>()?, batch: true })
    }

    /// Approximate size in memory, for the limit on queued appends.
    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|draft| draft.content.len() + draft.local_id.len() + 64).sum()
    }

    /// Checks the epochs of the keys, of which `newest` is the session's.
    ///
    /// Where a machine hosts the session, each message says its own, and none is older, because a device that was removed may have
    /// that key. A newer one is taken there: after a restore of older data the machine continues with the key that it has.
    /// In sessions of people no message can have a key that the session has not got yet.
    pub(crate) fn check_epochs(&self, is_hosted: bool, newest: i64) -> Result<(), BadEpoch> {
        for (at, draft) in self.messages.iter().enumerate() {
            let wrong = |detail: String| {
                let pointer = if self.batch { format!("/messages/{at}/keyEpoch") } else { "/keyEpoch".to_owned() };
                Err(BadEpoch::Wrong(Invalid::new(pointer, detail)))
            };
            match draft.key_epoch {
                None if is_hosted => return wrong("is required in a session that a machine hosts".to_owned()),
                Some(epoch) if is_hosted && epoch < newest => return Err(BadEpoch::Old { current: newest }),
                Some(epoch) if !is_hosted && epoch > newest => {
                    return wrong(format!(
                        "must be at most {newest}, the session's; to begin a new epoch, change its `encryptionKey` first"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What they count for the quota if all of them are new.
    pub(crate) fn counted_bytes(&self) -> i64 {
        self.messages.iter().map(Draft::counted_bytes).fold(0, i64::saturating_add)
    }
}

impl Draft {
    fn new(message: AppendMessage) -> Result<Self, Invalid> {
        if message.key_epoch.is_some_and(|epoch| !(1..=9_007_199_254_740_991).contains(&epoch)) {
            return Err(Invalid::new("/keyEpoch", "must be a whole number from 1 on"));
        }
        Ok(Self {
            local_id: message.local_id.into_string(),
            content: message.content.into_string(),
            key_epoch: message.key_epoch,
        })
    }

    /// What it counts for the quota once it is stored.
    fn counted_bytes(&self) -> i64 {
        i64::try_from(self.content.len()).unwrap_or(i64::MAX).saturating_add(ROW_BYTES)
    }

    fn numbered(&self, sender: &Actor, seq: i64, created_at: Timestamp) -> Message {
        Message {
            id: MessageId::generate(),
            seq,
            local_id: self.local_id.clone(),
            content: self.content.clone(),
            sender_id: sender.user,
            sender_machine_id: sender.machine.clone(),
            key_epoch: self.key_epoch,
            created_at,
        }
    }
}

/// Numbers the drafts of a batch. `seq` continues without gaps in each session, and a `localId` that its sender used before
/// in the session gives the message it was used for.
pub(crate) struct Numbering {
    at: Timestamp,
    last_seqs: HashMap<SessionId, i64>,
    by_local_id: HashMap<(SessionId, Actor, String), Arc<Message>>,
    added: Vec<(SessionId, Arc<Message>)>,
}

/// The messages for the drafts of one call, in the order of the drafts.
pub(crate) struct Numbered {
    pub(crate) messages: Vec<Arc<Message>>,
    /// At least one of them is new.
    pub(crate) created: bool,
    /// What the new ones count for the quota.
    pub(crate) counted_bytes: i64,
}

impl Numbering {
    /// `last_seqs` come from rows that stay locked until the new messages are committed.
    pub(crate) fn new(at: Timestamp, last_seqs: HashMap<SessionId, i64>) -> Self {
        Self { at, last_seqs, by_local_id: HashMap::new(), added: Vec::new() }
    }

    /// Adds a message that is stored already, so that its `localId` is recognised.
    pub(crate) fn add_stored(&mut self, session: SessionId, message: Message) {
        let sender = Actor { user: message.sender_id, machine: message.sender_machine_id.clone() };
        self.by_local_id.insert((session, sender, message.local_id.clone()), Arc::new(message));
    }

    /// What these drafts would count for the quota: those whose `localId` is not known to be used.
    pub(crate) fn counted_bytes(&self, session: SessionId, sender: &Actor, drafts: &[Draft]) -> i64 {
        let mut seen = HashSet::new();
        let new = drafts.iter().filter(|draft| {
            seen.insert(&draft.local_id)
                && !self.by_local_id.contains_key(&(session, sender.clone(), draft.local_id.clone()))
        });
        new.map(Draft::counted_bytes).fold(0, i64::saturating_add)
    }

    /// Numbers the drafts of one call.
    pub(crate) fn number(&mut self, _: CanEdit<'_>, session: SessionId, sender: &Actor, drafts: &[Draft]) -> Numbered {
        let added_before = self.added.len();
        let mut counted_bytes = 0_i64;
        let last_seq = self.last_seqs.entry(session).or_default();
        let messages = drafts.iter().map(|draft| {
            let message =
                self.by_local_id.entry((session, sender.clone(), draft.local_id.clone())).or_insert_with(|| {
                    *last_seq += 1;
                    counted_bytes = counted_bytes.saturating_add(draft.counted_bytes());
                    let message = Arc::new(draft.numbered(sender, *last_seq, self.at));
                    self.added.push((session, Arc::clone(&message)));
                    message
                });
            Arc::clone(message)
        });
        let messages = messages.collect();
        Numbered { messages, created: self.added.len() > added_before, counted_bytes }
    }

    /// The messages to store.
    pub(crate) fn into_added(self) -> Vec<(SessionId, Arc<Message>)> {
        self.added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_types::ids::UserId;

    use crate::domain::access::{Access, Ownership};

    fn person() -> Actor {
        Actor { user: UserId::generate(), machine: None }
    }

    fn access_of(owner: &Actor) -> Access {
        Access::of(Ownership { owner: owner.user, host: None }, owner, None).unwrap()
    }

    fn draft(local_id: &str) -> Draft {
        Draft { local_id: local_id.to_owned(), content: format!("content of {local_id}"), key_epoch: None }
    }

    #[test]
    fn seq_continues_in_each_session_and_repeated_local_ids_take_no_number() {
        let (one, other) = (SessionId::generate(), SessionId::generate());
        let (owner, guest) = (person(), person());
        let host = Actor { machine: Some("m".parse().unwrap()), ..owner.clone() };
        let access = access_of(&owner);
        let mut numbering = Numbering::new(Timestamp::from_micros(0), HashMap::from([(one, 7), (other, 0)]));
        numbering.add_stored(one, draft("stored").numbered(&owner, 3, Timestamp::from_micros(0)));
        let mut seqs = |session, sender: &Actor, local_ids: &[&str]| -> Vec<i64> {
            let drafts: Vec<Draft> = local_ids.iter().map(|local_id| draft(local_id)).collect();
            numbering
                .number(access.edit().unwrap(), session, sender, &drafts)
                .messages
                .iter()
                .map(|message| message.seq)
                .collect()
        };
        assert_eq!(seqs(one, &owner, &["a", "stored", "b", "a"]), [8, 3, 9, 8]);
        assert_eq!(seqs(other, &owner, &["a"]), [1]);
        assert_eq!(seqs(one, &guest, &["a", "stored"]), [10, 11]);
        assert_eq!(seqs(one, &owner, &["b", "c"]), [9, 12]);
        assert_eq!(seqs(one, &host, &["a", "stored"]), [13, 14], "a machine's local ids are its own");
        assert_eq!(numbering.into_added().len(), 8);
    }

    #[test]
    fn a_call_that_stores_nothing_new_says_so() {
        let (session, owner) = (SessionId::generate(), person());
        let access = access_of(&owner);
        let mut numbering = Numbering::new(Timestamp::from_micros(0), HashMap::new());
        let mut created = |local_ids: &[&str]| {
            let drafts: Vec<Draft> = local_ids.iter().map(|local_id| draft(local_id)).collect();
            numbering.number(access.edit().unwrap(), session, &owner, &drafts).created
        };
        assert!(created(&["a"]));
        assert!(!created(&["a"]));
        assert!(created(&["a", "b"]));
    }

    fn one(json: &str) -> Result<Drafts, String> {
        Drafts::one(serde_json::from_str(json).unwrap()).map_err(|invalid| invalid.pointer)
    }

    fn several(json: &str) -> Result<Drafts, String> {
        Drafts::several(serde_json::from_str(json).unwrap()).map_err(|invalid| invalid.pointer)
    }

    #[test]
    fn problems_point_at_the_message() {
        assert!(one(r#"{"content":"c","localId":"l","keyEpoch":1}"#).is_ok());
        for epoch in ["0", "-1", "9007199254740992"] {
            let message = format!(r#"{{"content":"c","localId":"l","keyEpoch":{epoch}}}"#);
            assert_eq!(one(&message).map(|_| ()), Err("/keyEpoch".to_owned()));
            let list = format!(r#"{{"messages":[{{"content":"c","localId":"m"}},{message}]}}"#);
            assert_eq!(several(&list).map(|_| ()), Err("/messages/1/keyEpoch".to_owned()));
        }
        assert_eq!(several(r#"{"messages":[]}"#).map(|_| ()), Err("/messages".to_owned()));
    }

    #[test]
    fn a_list_has_at_most_200_messages() {
        let list = |count: usize| {
            let messages: Vec<String> = (0..count)
                .map(|n| format!(r#"{{"content":"c","localId":"{n}","keyEpoch":9007199254740991}}"#))
                .collect();
            several(&format!(r#"{{"messages":[{}]}}"#, messages.join(","))).map(|drafts| drafts.messages.len())
        };
        assert_eq!(list(200), Ok(200));
        assert_eq!(list(201), Err("/messages".to_owned()));
    }

    #[test]
    fn the_size_of_a_call_counts_contents_and_local_ids() {
        let one = Drafts { messages: vec![draft("a")], batch: false }.bytes();
        assert_eq!(one, "content of a".len() + "a".len() + 64);
        assert_eq!(Drafts { messages: vec![draft("a"), draft("b")], batch: true }.bytes(), 2 * one);
    }

    #[test]
    fn a_message_counts_its_content_and_its_row() {
        // The contents have 12 bytes each.
        let drafts = |local_ids: &[&str]| local_ids.iter().map(|local_id| draft(local_id)).collect::<Vec<_>>();
        let call = |local_ids: &[&str]| Drafts { messages: drafts(local_ids), batch: true };
        assert_eq!((call(&["a"]).counted_bytes(), call(&["a", "b"]).counted_bytes()), (268, 536));
    }

    #[test]
    fn a_repeated_message_counts_nothing() {
        let (session, owner) = (SessionId::generate(), person());
        let access = access_of(&owner);
        let mut numbering = Numbering::new(Timestamp::from_micros(0), HashMap::new());
        numbering.add_stored(session, draft("s").numbered(&owner, 1, Timestamp::from_micros(0)));
        let guest = person();
        for (sender, local_ids, bytes) in [
            (&owner, ["s", "s"], 0),
            (&owner, ["s", "a"], 268),
            (&owner, ["b", "b"], 268),
            (&guest, ["s", "a"], 536),
            (&owner, ["a", "b"], 0),
        ] {
            let drafts = local_ids.map(draft);
            assert_eq!(numbering.counted_bytes(session, sender, &drafts), bytes, "before: {local_ids:?}");
            let numbered = numbering.number(access.edit().unwrap(), session, sender, &drafts);
            assert_eq!(numbered.counted_bytes, bytes, "{local_ids:?}");
        }
    }

    #[test]
    fn a_machine_takes_no_old_key_and_a_session_of_people_none_that_it_has_not_got() {
        let wrong = || Err("/keyEpoch".to_owned());
        let old = || Err("the session has 5".to_owned());
        for (key_epoch, hosted, of_people) in
            [(None, wrong(), Ok(())), (Some(4), old(), Ok(())), (Some(5), Ok(()), Ok(())), (Some(6), Ok(()), wrong())]
        {
            let call = Drafts { messages: vec![Draft { key_epoch, ..draft("a") }], batch: false };
            for (is_hosted, expected) in [(true, hosted), (false, of_people)] {
                let checked = call.check_epochs(is_hosted, 5);
                assert_eq!(checked.map_err(what_is_wrong), expected, "{key_epoch:?}, hosted: {is_hosted}");
            }
        }
        let second_lacks_it = vec![Draft { key_epoch: Some(5), ..draft("a") }, draft("b")];
        let checked = Drafts { messages: second_lacks_it, batch: true }.check_epochs(true, 5);
        assert_eq!(checked.map_err(what_is_wrong), Err("/messages/1/keyEpoch".to_owned()));
    }

    fn what_is_wrong(epoch: BadEpoch) -> String {
        match epoch {
            BadEpoch::Wrong(invalid) => invalid.pointer,
            BadEpoch::Old { current } => format!("the session has {current}"),
        }
    }
}
