//! Wrapped lines are kept, so that a frame costs what has changed and not what is there.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ensemble_protocol::transcript::body::{Block as Content, ToolCall, ToolContent};
use ensemble_protocol::transcript::view::{Author, Item, Shown, Taken, View};

use super::block::{Block, Setting, block};

/// The number of blocks that are kept in addition to those of the last frame.
const MOST: usize = 512;

/// The lines of items, by their ids.
#[derive(Default)]
pub(crate) struct Cache {
    blocks: HashMap<u64, Kept>,
    frame: u64,
    /// How often an item was wrapped.
    pub(crate) wrapped: u64,
}

struct Kept {
    print: u64,
    frame: u64,
    block: Block,
}

impl Cache {
    /// A new frame begins. What the last ones did not need goes when there is too much.
    pub(crate) fn begin(&mut self) {
        if self.blocks.len() > MOST {
            let frame = self.frame;
            self.blocks.retain(|_, kept| kept.frame == frame);
        }
        self.frame += 1;
    }

    /// The lines of an item, wrapped again only when it has changed.
    pub(crate) fn block(&mut self, item: &Item, view: &View, setting: &Setting<'_>) -> Block {
        let print = fingerprint(item, setting);
        if let Some(kept) = self.blocks.get_mut(&item.id).filter(|kept| kept.print == print) {
            kept.frame = self.frame;
            return kept.block.clone();
        }
        self.wrapped += 1;
        let block = block(item, view, setting);
        self.blocks.insert(item.id, Kept { print, frame: self.frame, block: block.clone() });
        block
    }
}

/// Another one whenever the lines of the item would be others.
fn fingerprint(item: &Item, setting: &Setting<'_>) -> u64 {
    let mut hash = DefaultHasher::new();
    let has_moved = matches!(item.shown, Shown::Moved);
    (setting.width, setting.unfolded, setting.about.level, item.seq, &item.local_id, has_moved).hash(&mut hash);
    if let Author::Person { user, .. } = &item.author {
        (setting.name(*user), setting.name(setting.about.owner), item.unconfirmed).hash(&mut hash);
    }
    match &item.shown {
        Shown::Prompt(_, taken) | Shown::Answer(_, taken) | Shown::Control(_, taken) => hash_taken(taken, &mut hash),
        Shown::Tool(call) => hash_call(call, &mut hash),
        Shown::Card(card) => {
            card.request_id.hash(&mut hash);
            if let Some(resolved) = &card.resolved {
                let by = resolved.by.map(|user| setting.name(user));
                (&resolved.option_id, by, &resolved.reason).hash(&mut hash);
            }
        }
        // These never change once they are there.
        Shown::Turn(_)
        | Shown::Text(_)
        | Shown::Thought(_)
        | Shown::Error(_)
        | Shown::Note(_)
        | Shown::Moved
        | Shown::Newer(_) => {}
    }
    hash.finish()
}

fn hash_taken(taken: &Taken, hash: &mut DefaultHasher) {
    std::mem::discriminant(taken).hash(hash);
    if let Taken::Rejected { code, text } = taken {
        (code, text).hash(hash);
    }
}

fn hash_call(call: &ToolCall, hash: &mut DefaultHasher) {
    (&call.title, &call.kind, &call.status).hash(hash);
    for content in call.content.iter().flatten() {
        match content {
            ToolContent::Content { content: Content::Text { text }, cut } => (text, cut).hash(hash),
            ToolContent::Diff(diff) => (&diff.path, &diff.old_text, &diff.new_text, diff.cut).hash(hash),
            ToolContent::Terminal(terminal) => {
                let exit = terminal.exit_status.as_ref().map(|exit| (exit.exit_code, &exit.signal));
                (&terminal.output, terminal.cut, exit).hash(hash);
            }
            ToolContent::Content { .. } | ToolContent::Newer => {}
        }
    }
}
