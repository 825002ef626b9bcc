//! Messages that are to be appended.

use ensemble_types::messages::{AppendMessage, AppendRequest};

use super::Invalid;

/// How many messages one call may append.
pub(crate) const MAX_DRAFTS: usize = 200;

/// A message before it has a number.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) local_id: String,
    pub(crate) content: String,
    pub(crate) key_epoch: Option<i64>,
}

/// What one call appends: all of it or nothing.
#[derive(Debug)]
pub(crate) struct Drafts {
    pub(crate) messages: Vec<Draft>,
    /// Asked for as a batch, and answered as one.
    pub(crate) batch: bool,
}

impl Drafts {
    pub(crate) fn new(request: AppendRequest) -> Result<Self, Invalid> {
        let AppendRequest { content, local_id, key_epoch, messages } = request;
        match (content, local_id, messages) {
            (None, None, Some(messages)) if key_epoch.is_none() => {
                if !(1..=MAX_DRAFTS).contains(&messages.len()) {
                    let detail = format!("must hold 1 to {MAX_DRAFTS} messages, not {}", messages.len());
                    return Err(Invalid::new("/messages", detail));
                }
                let drafts = messages.into_iter().enumerate().map(|(at, message)| {
                    Draft::new(message).map_err(|i| Invalid::new(format!("/messages/{at}{}", i.pointer), i.detail))
                });
                Ok(Self { messages: drafts.collect::<Result<_, _>>()?, batch: true })
            }
            (Some(content), Some(local_id), None) => {
                let draft = Draft::new(AppendMessage { content, local_id, key_epoch })?;
                Ok(Self { messages: vec![draft], batch: false })
            }
            (_, _, Some(_)) => Err(Invalid::new("/messages", "is sent instead of content, localId and keyEpoch")),
            (None, _, None) => Err(Invalid::new("/content", "is required")),
            (Some(_), None, None) => Err(Invalid::new("/localId", "is required")),
        }
    }

    /// What they weigh in memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|draft| draft.content.len() + draft.local_id.len() + 64).sum()
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
}
